"""Recognition: flows and topology -> jobs and their members.

LLMPrism (arXiv 2505.00342), stage 1: disjoint sets over all pairs give clusters; clusters on similar sets of hosts
are one job, since tensor parallelism stays inside hosts and leaves each rail a cluster of its own. Beyond the paper:
only bulk data links NICs, only pairs that work together and still do (see `links`), and clusters on the same hosts
are one job or two tenants by what is likelier (see `one_job`).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS, Window
from llmprism_tasks.numerics import ragged
from llmprism_tasks.numerics.robust import EVEN_ODDS
from llmprism_tasks.settings import RecognitionSettings, Settings
from llmprism_tasks.stages.recognition import job_ids, links
from llmprism_tasks.stages.recognition.islands import hosts_in_unison
from llmprism_tasks.stages.recognition.silent_jobs import with_fallen_silent
from llmprism_tasks.stages.recognition.tenancy import joined_in_step, tenants
from llmprism_tasks.stages.recognition.unlisted_nics import with_unlisted
from llmprism_tasks.stages.step_division.groups.balance import main_pairs
from llmprism_tasks.stages.step_division.joint import job_steps
from llmprism_tasks.stages.step_division.periodicity import PAIR, stream_rhythms
from llmprism_tasks.stages.step_division.restarts import GpuTraffic
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.clusters import connected_nics
from llmprism_tasks.stages.traffic.index import TrafficIndex

RHYTHMIC_BYTES = 0.1
"""Share of the bytes, in pairs that keep a rhythm, from which a job trains: where experts and copies of files share its
pairs a quarter and more, in inference and shuffles a hundredth."""


def recognition(
    *,
    traffic: TrafficIndex,
    gpu_traffic: GpuTraffic,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    elsewhere: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Recognise the jobs at work in a window.

    Parameters
    ----------
    traffic, gpu_traffic : the window's flows and those of its look-back; of these, bulk flows between GPUs
    topology : `addr`, `host`, one row per GPU NIC; flows with other ends make no job
    elsewhere : `flow_start_ns` of flows in other partitions, ascending; None if `traffic` is the whole platform

    Returns
    -------
    jobs : layout NULL, it is for `parallelism` to say; `training` if what is sent comes again and again, and comes
        back, else `other`. Confidence in training is 1 if all NICs show a common period and all bytes repeat, 0.5 if
        none do, times the probability that clusters on the same hosts are what they were taken for, one job or several
    job_members : NICs of each job
    """
    since_ns = _first_seen_ns(traffic, elsewhere)
    unison = hosts_in_unison(traffic, topology, settings)
    found = at_work(gpu_traffic, topology, unison, since_ns, window, settings)
    jobs, members = with_fallen_silent(
        found,
        gpu_traffic.bulk,
        traffic,
        topology,
        window,
        settings,
        lambda then, moment: at_work(
            GpuTraffic.of(then, moment, settings), topology, unison, since_ns, moment, settings
        ),
        elsewhere,
    )
    jobs = with_unlisted(_demote_one_way_jobs(jobs, members, traffic), members, traffic, topology, window, settings)
    return jobs, members


def _first_seen_ns(traffic: TrafficIndex, elsewhere: pl.DataFrame | None) -> int:
    """Return when the platform's first flow was seen, to the millisecond: starts elsewhere are known no better."""
    starts = [traffic.table["flow_start_ns"]] + ([] if elsewhere is None else [elsewhere["flow_start_ns"]])
    first_ns = min((int(each.min()) for each in starts if not each.is_empty()), default=0)  # type: ignore[arg-type]
    return first_ns - first_ns % NANOSECONDS_PER_MS


def at_work(
    traffic: GpuTraffic,
    topology: pl.DataFrame,
    unison: pl.DataFrame,
    since_ns: int,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Recognise the jobs whose NICs send in a window, or are silent for no longer than their period explains.

    Parameters
    ----------
    traffic : bulk flows between GPUs, look-back included
    unison : as `islands.hosts_in_unison` returns
    since_ns : when the platform's first flow was seen

    Returns
    -------
    as `recognition`
    """
    if traffic.bulk.is_empty():
        return frames.empty("jobs"), frames.empty("job_members")
    former, running, rhythms = traffic.former, traffic.running.flows, traffic.running.rhythms
    working = working_pairs(rhythms, running, window, settings.recognition)
    linking = links.passed_on(_linking_pairs(working, running, window, settings), traffic.bulk)
    if linking.is_empty():
        return frames.empty("jobs"), frames.empty("job_members")
    streams = working.join(linking, on="pair", how="semi")
    between = nic_pairs.flows_of_pairs(running, linking.select("pair"))
    members = joined_in_step(clusters(linking, topology), between, unison, settings.recognition)
    steps, showing, alike = _cluster_steps(between, streams, members, window, settings)
    nics = _describe_nics(members, linking, between, showing, alike, window)
    nics = _drop_idle_clusters(nics, settings.recognition)
    nics = nics.join(
        tenants(nics, steps, between, unison, (since_ns, window.end_ns), settings.recognition), on="cluster"
    )
    followed = [linking, links.plain(links.weighed(rhythms, window.end_ns, settings.recognition))]
    if not former.is_empty():
        before = links.weighed(stream_rhythms(former, settings.rhythm), window.end_ns, settings.recognition)
        followed.append(before.filter("regular"))
    sent = _sending_windows(traffic.bulk).join(
        pl.concat([pairs.select("pair") for pairs in followed]), on="pair", how="semi"
    )
    return tables(nics, _training_jobs(nics), sent, window)


def working_pairs(
    rhythms: pl.DataFrame, bulk: pl.DataFrame, window: Window, settings: RecognitionSettings
) -> pl.DataFrame:
    """Keep the streams of pairs that sent in the window, or are silent for no longer than their period explains.

    Between NICs that keep a rhythm with others, a pair may also be silent for as long as is usual for it: its period
    may be that of the buckets of gradients.

    Parameters
    ----------
    rhythms : as `stream_rhythms` returns
    bulk : the flows of these pairs
    """
    patience = (pl.col("period_ns") * settings.silent_periods).fill_null(0).cast(pl.Int64)
    since = pl.min_horizontal(pl.lit(window.start_ns), window.end_ns - patience)
    working = (pl.col("last_ns") >= since).any().over("pair")
    often = (pl.col("bursts") >= settings.regular_bursts).fill_null(value=False)
    at_work = links.by_end(rhythms.filter(working & often).drop_nulls("period_ns"), "pair")["addr"].implode()
    quiet = rhythms.filter(~working & pl.all_horizontal(pl.col(end).is_in(at_work) for end in PAIR))
    if quiet.is_empty():
        return rhythms.filter(working)
    silences = links.usual_silences(rhythms, quiet, bulk)
    waiting = quiet.join(silences, on="pair").filter(
        window.end_ns - pl.col("last_ns").max().over("pair") <= pl.col("silence_ns") * settings.silent_periods
    )
    return rhythms.filter(working | pl.col("pair").is_in(waiting["pair"].implode()))


def clusters(pairs: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Join NICs that are linked by pairs: `addr`, `host`, `cluster`, the paper's cross-machine clusters."""
    return connected_nics(pairs, pairs).join(topology.select("addr", "host"), on="addr").sort("addr")


def _linking_pairs(working: pl.DataFrame, bulk: pl.DataFrame, window: Window, settings: Settings) -> pl.DataFrame:
    """Return the pairs at work that link their NICs, as `links.weighed` describes them."""
    pairs = links.weighed(working, window.end_ns, settings.recognition)
    closing = links.closing(pairs, bulk, window.end_ns, settings.rhythm.answer_bytes)
    return links.still_together(pl.concat([links.plain(pairs), closing]), bulk, settings.recognition)


def _cluster_steps(
    bulk: pl.DataFrame, streams: pl.DataFrame, members: pl.DataFrame, window: Window, settings: Settings
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return each cluster's steps (`cluster`, `step`, `end_ns`, `period_ns`), the pairs that show them (`pair`,
    `src_addr`, `dst_addr`), and those that send the same in each, though they show no end of it (`pair`): those that
    gather shards of parameters never pause."""
    grouped = streams.join(members.select(src_addr="addr", group="cluster"), on="src_addr")
    stepping = job_steps.steps_of_groups(
        bulk, grouped, settings.rhythm, until_ns=window.end_ns, before_ns=window.start_ns
    )
    sent, bytes_ = stepping.sent, np.zeros(stepping.periods.size, np.int64)
    np.add.at(bytes_, sent.series, sent.total)
    pairs = (
        nic_pairs.pairs_of(bulk, PAIR)
        .with_columns(place=pl.int_range(pl.len()), bytes=bytes_, period_ns=stepping.periods)
        .filter(pl.col("bytes") > 0)
        .join(grouped.select("pair", cluster="group").unique(), on="pair")
    )
    heavy = main_pairs(pairs, "cluster")
    steps = (
        pl.DataFrame({"place": sent.series, "step": sent.number, "end_ns": sent.last})
        .join(heavy.select("place", "cluster", "period_ns"), on="place")
        .group_by("cluster", "step")
        .agg(pl.col("end_ns").max(), pl.col("period_ns").first())
        # What ends after all that was seen is a record under way, be it of a copy that goes on for many steps.
        .filter(pl.col("end_ns") <= window.end_ns)
    )
    return steps, pairs.select("pair", *PAIR), stepping.streams.alike.streams.select("pair")


def _describe_nics(
    members: pl.DataFrame,
    linking: pl.DataFrame,
    bulk: pl.DataFrame,
    showing: pl.DataFrame,
    alike: pl.DataFrame,
    window: Window,
) -> pl.DataFrame:
    """Say what each NIC moves over linking pairs.

    Parameters
    ----------
    showing, alike : the pairs that show their cluster's steps, and those that send the same in each (`pair`)

    Returns
    -------
    members with `bytes` (look-back included), `repeated` (of these, by pairs that keep a rhythm, their own or that of
    their cluster's steps), `moved` (in the window), and `shows` (whether the NIC shows its cluster's steps)
    """
    now = np.where(bulk["window_start_ns"].to_numpy() == window.start_ns, bulk["bytes"].to_numpy(), 0)
    each = ragged.sums(now, nic_pairs.starts_of_pairs(bulk))
    moved = links.by_end(nic_pairs.pairs_of(bulk, PAIR).with_columns(moved=each).filter(pl.col("moved") > 0), "moved")
    repeated = pl.col("bytes").filter("repeats").sum()
    stepping = pl.concat([showing["pair"], alike["pair"].cast(showing["pair"].dtype)]).implode()
    repeats = pl.col("regular") | pl.col("pair").is_in(stepping)
    addrs = pl.concat([showing[end].alias("addr") for end in PAIR]).implode()
    known = (
        links.by_end(linking.with_columns(repeats=repeats), "bytes", "repeats")
        .group_by("addr")
        .agg(repeated=repeated, bytes=pl.col("bytes").sum())
    )
    return (
        members.join(known, on="addr")
        .join(moved.group_by("addr").sum(), on="addr", how="left")
        .with_columns(pl.col("moved").fill_null(0), shows=pl.col("addr").is_in(addrs))
        .sort("addr")
    )


def _drop_idle_clusters(nics: pl.DataFrame, settings: RecognitionSettings) -> pl.DataFrame:
    """Leave out the clusters that move next to nothing; one with a rhythm may wait a window for its next step."""
    typical = pl.when(pl.col("shows").any()).then(pl.col("bytes").median()).otherwise(pl.col("moved").median())
    return nics.filter(typical.over("cluster") >= settings.least_bytes)


def _training_jobs(nics: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs that train with `confidence`.

    Half of it is for the rhythm itself, half is the share of the NICs that show it times the share of the bytes in
    pairs that keep one. All is times how sure it is that its clusters are one job.
    """
    jobs = nics.group_by("job").agg(
        shows=pl.col("shows").mean(),
        repeated=pl.col("repeated").sum() / pl.col("bytes").sum(),
        sure=pl.col("sure").min(),
    )
    sure = pl.col("sure") * (EVEN_ODDS + (1 - EVEN_ODDS) * pl.col("shows") * pl.col("repeated"))
    return jobs.filter(pl.col("repeated") >= RHYTHMIC_BYTES).select("job", confidence=sure)


def _demote_one_way_jobs(jobs: pl.DataFrame, members: pl.DataFrame, traffic: TrafficIndex) -> pl.DataFrame:
    """Call a job `other` of which nothing comes back to who sent it, over whichever addresses: in training all does.

    Copies that are handed on from host to host, again and again, have a rhythm, but nothing to train with.
    """
    pairs = nic_pairs.pairs_of(traffic.bulk, PAIR)
    back = pairs.filter(links.on_circuit(pairs))["src_addr"].cast(pl.String).implode()
    trains = members.filter(pl.col("addr").is_in(back))["job_id"].unique().implode()
    training = (pl.col("kind") == "training") & pl.col("job_id").is_in(trains)
    return jobs.with_columns(
        kind=pl.when(training).then("kind").otherwise(pl.lit("other")),
        confidence=pl.when(training).then("confidence").otherwise(EVEN_ODDS),
    )


def _sending_windows(bulk: pl.DataFrame) -> pl.DataFrame:
    """Return in which windows each pair sends: `pair`, `src_addr`, `dst_addr`, `window_start_ns`."""
    first = ragged.bounds(*(bulk[name].to_numpy() for name in ("pair", "window_start_ns")))[:-1]
    return nic_pairs.named(bulk.select("pair", *PAIR, "window_start_ns")[first])


def tables(
    members: pl.DataFrame, training: pl.DataFrame, linking: pl.DataFrame, window: Window
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Name the jobs and return `jobs` and `job_members`.

    Parameters
    ----------
    members : `addr`, `host`, `job` (a number)
    training : `job`, `confidence` of the jobs that train; all others are `other`
    linking : `src_addr`, `dst_addr`, `window_start_ns`: the pairs, and when they sent, by which a job is followed into
        the past
    """
    names = job_ids.names({job: set(part["addr"]) for (job,), part in members.group_by("job")}, linking, window)
    named = members.join(training, on="job", how="left").with_columns(
        window_start_ns=pl.lit(window.start_ns), job_id=pl.col("job").replace_strict(names, return_dtype=pl.String)
    )
    sure = pl.col("confidence").first()
    jobs = named.group_by("window_start_ns", "job_id").agg(
        kind=pl.when(sure.is_null()).then(pl.lit("other")).otherwise(pl.lit("training")),
        endpoints=pl.len(),
        hosts=pl.col("host").n_unique(),
        tp=pl.lit(None),
        pp=pl.lit(None),
        dp=pl.lit(None),
        confidence=sure.fill_null(EVEN_ODDS),
    )
    return frames.conform(jobs, "jobs"), frames.conform(named, "job_members")
