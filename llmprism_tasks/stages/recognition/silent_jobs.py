"""Jobs that have fallen silent: they are still there, though they send nothing.

Whoever has sent nothing for longer than its period explains takes no part in the window's jobs. A job that hangs is
recognised as it was when it fell silent, for as long as the look-back shows it, unless one of its NICs works again. One
that may have ended is so in the one window that tells of it. One that goes on just before the window ends, and has not
sent enough to be recognised by, is what it was, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.liveness.first_stopped import find_first_stopped
from llmprism_tasks.stages.liveness.foreign import MOST_FOREIGN_PAIRS, is_beyond_chatter
from llmprism_tasks.stages.liveness.overdue import Silence, long_silences
from llmprism_tasks.stages.recognition.links import on_circuit, weights
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.step_division.restarts import part_at_restarts
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.clusters import connected_nics
from llmprism_tasks.stages.traffic.index import TrafficIndex

Tables = tuple[pl.DataFrame, pl.DataFrame]
Recognise = Callable[[pl.DataFrame, Window], Tables]


def with_fallen_silent(
    found: Tables,
    bulk: pl.DataFrame,
    traffic: TrafficIndex,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    recognise: Recognise,
    elsewhere: pl.DataFrame | None = None,
) -> Tables:
    """Add the jobs that fell silent, and give those of which a part was found all members back.

    Parameters
    ----------
    found : `jobs` and `job_members` of the window, by the flows of who still sends
    bulk : bulk flows between NICs, look-back included
    traffic : all flows of the same time
    recognise : flows and the window they end with -> `jobs` and `job_members`
    elsewhere : as for `long_silences`
    """
    jobs, members = found
    least_ns = int(settings.traffic.restart_silence_s * NANOSECONDS_PER_SECOND)
    trains = members.join(jobs.filter(pl.col("kind") == "training"), on="job_id", how="semi")
    silent = _silent_pairs(bulk, trains, topology, window.end_ns - least_ns, settings)
    for then, their, mine in _recognise_silent_jobs(bulk, silent, window, recognise):
        for silence in long_silences(
            nic_pairs.inside_jobs(mine, their), traffic, topology, window, settings, elsewhere
        ):
            again = their.filter(pl.col("job_id") == silence.gap.job_id)
            may_have_ended = silence.is_news and not silence.alone
            if not silence.over and (may_have_ended or (silence.in_mid_step and _is_hanging(silence, again))):
                jobs, members = _restore_job((jobs, members), silence.gap.job_id, then, again)
    before = _flows_before_silence(bulk, jobs, members, topology, window, settings)
    parted = _silent_pairs(before, members.clear(), topology, window.end_ns, settings)
    for then, their, _ in _recognise_silent_jobs(before, parted, window, recognise):
        for silence in long_silences(
            nic_pairs.inside_jobs(bulk, their), traffic, topology, window, settings, elsewhere
        ):
            again = their.filter(pl.col("job_id") == silence.gap.job_id)
            if silence.over and not silence.restarted and _is_unknown(jobs, members, again):
                jobs, members = _restore_job((jobs, members), silence.gap.job_id, then, again)
    at = pl.lit(window.start_ns)
    return (
        jobs.with_columns(window_start_ns=at).sort("job_id"),
        members.with_columns(window_start_ns=at).sort("job_id", "addr"),
    )


def _restore_job(found: Tables, job_id: str, then: pl.DataFrame, again: pl.DataFrame) -> Tables:
    """Put a job as it was in the place of all that has any of its members."""
    jobs, members = found
    touched = members.join(again, on="addr", how="semi")["job_id"].unique().implode()
    jobs, members = (frame.filter(~pl.col("job_id").is_in(touched)) for frame in (jobs, members))
    if job_id in jobs["job_id"]:
        return jobs, members
    return pl.concat([jobs, then.filter(pl.col("job_id") == job_id)]), pl.concat([members, again])


def _is_unknown(jobs: pl.DataFrame, members: pl.DataFrame, again: pl.DataFrame) -> bool:
    """Say whether what some NICs do now is no training (yet), and nobody else takes part in it."""
    now = members.join(members.join(again, on="addr", how="semi"), on="job_id", how="semi")
    training = jobs.filter(pl.col("kind") == "training").join(now, on="job_id", how="semi")
    return training.is_empty() and now.join(again, on="addr", how="anti").is_empty()


def _flows_before_silence(
    bulk: pl.DataFrame,
    jobs: pl.DataFrame,
    members: pl.DataFrame,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> pl.DataFrame:
    """Return what was sent before a long silence by NICs, and those linked to them, that show no period (yet): a job
    that goes on just before the window ends has not sent enough to be recognised by."""
    unknown = members.join(jobs.filter(pl.col("kind") == "other"), on="job_id", how="semi")
    if unknown.is_empty():
        return bulk.clear()
    bulk = nic_pairs.in_order(bulk)
    pairs = nic_pairs.pairs_of(bulk, PAIR)
    sites = _sites(pairs, topology)
    near = sites.filter(pl.col("site").is_in(sites.join(unknown, on="addr", how="semi")["site"].implode()))
    mine = nic_pairs.flows_of_pairs(
        bulk, pairs.join(near, left_on="src_addr", right_on="addr", how="semi").select("pair")
    )
    return part_at_restarts(mine, window, settings.traffic)[0]


def _is_hanging(silence: Silence, members: pl.DataFrame) -> bool:
    """Say whether somebody went quiet before the others; where all stopped at once, the job is gone."""
    hosts = dict(members.select("addr", "host").rows())
    return find_first_stopped(silence.where, hosts, together=True) is not None


def _recognise_silent_jobs(
    bulk: pl.DataFrame, silent: pl.DataFrame, window: Window, recognise: Recognise
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]]:
    """Yield what was recognised among silent NICs at the moments when they last sent, with the flows until then."""
    for _, site in silent.group_by("site", maintain_order=True):
        left = site
        while not left.is_empty():
            moment = Window(int(left["last_ns"].max()) + 1 - window.length_ns, window.length_ns)  # type: ignore[arg-type]
            mine = nic_pairs.flows_of_pairs(bulk, left.select("pair"))
            before = mine.filter(pl.col("flow_start_ns") < moment.end_ns)
            then, their = recognise(_align_windows(before, moment), moment)
            yield then, their, mine
            known = their["addr"].implode()
            latest = pl.col("last_ns") == pl.col("last_ns").max()
            done = pl.col("src_addr").is_in(known) | latest.max().over("cluster").fill_null(value=False)
            left = left.filter(~done & pl.col("last_ns").is_not_null().any().over("cluster"))


def _silent_pairs(
    bulk: pl.DataFrame, members: pl.DataFrame, topology: pl.DataFrame, since_ns: int, settings: Settings
) -> pl.DataFrame:
    """Return the pairs, chatter apart, of clusters of which at most a few have sent since, as a copy of files does; not
    those of a job that trains and whose others have sent.

    Parameters
    ----------
    members : of jobs that train

    Returns
    -------
    sorted: `pair`, `src_addr`, `dst_addr`, `last_ns` (NULL if the pair goes on, or only chatters), `cluster` (of NICs
    that sent to each other), `site` (of clusters that share hosts, as the rails of a job do)
    """
    bulk = nic_pairs.in_order(bulk)
    least_ns = int(settings.traffic.restart_silence_s * NANOSECONDS_PER_SECOND)
    moves = is_beyond_chatter(bulk, least_ns=least_ns, same_size=settings.traffic.same_size)
    sizes, ends = (bulk[column].to_numpy() for column in ("bytes", "flow_end_ns"))
    first = nic_pairs.starts_of_pairs(bulk)[:-1]
    pairs = nic_pairs.pairs_of(bulk, PAIR).with_columns(
        bytes=np.add.reduceat(sizes, first), last_ns=np.maximum.reduceat(np.where(moves, ends, 0), first)
    )
    if (pairs["last_ns"] >= since_ns).all():
        return pairs.select("pair", *PAIR, "last_ns", cluster="pair", site="pair").clear()
    heavy = pairs.filter(weights(pairs, "bytes") >= settings.recognition.negligible)
    heavy = heavy.filter(on_circuit(heavy))  # a copy that goes on is no work of the job whose NIC it comes from
    clustered = heavy.join(connected_nics(heavy, heavy), left_on="src_addr", right_on="addr")
    jobs = clustered.join(members.select("job_id", src_addr="addr"), on="src_addr", how="left")
    last = pl.col("last_ns").max()
    trained = pl.col("last_ns").filter(pl.col("last_ns") > 0)
    sends = (trained >= since_ns).mean().over("cluster") > MOST_FOREIGN_PAIRS
    works = sends | ((last.over("job_id") >= since_ns) & pl.col("job_id").is_not_null())
    silent = jobs.with_columns(works=works).filter(~pl.col("works").any().over("cluster"))
    fell_ns = pl.when(pl.col("last_ns").is_between(1, since_ns - 1)).then("last_ns")
    return (
        silent.join(_sites(silent, topology), left_on="src_addr", right_on="addr")
        .select("pair", *PAIR, "cluster", "site", last_ns=fell_ns)
        .sort("site", *PAIR)
    )


def _sites(pairs: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Join NICs that send to each other or share a host: `addr`, `site`."""
    at = topology.select(src_addr="addr", dst_addr=pl.format("on {}", "host"))
    joined = pl.concat([pairs.select(PAIR), at.join(pairs, on="src_addr", how="semi")])
    return connected_nics(joined, joined).rename({"cluster": "site"})


def _align_windows(flows: pl.DataFrame, moment: Window) -> pl.DataFrame:
    """Cut time into windows of which one ends at a moment."""
    since = pl.col("flow_start_ns") - moment.start_ns
    return flows.with_columns(window_start_ns=moment.start_ns + since // moment.length_ns * moment.length_ns)
