"""Last arrival: find the slow NIC of a job whose ranks exchange data in every layer (expert or context parallelism).

In such a job every rank waits for the slow one within the step, so the compute gaps of all NICs are about equally long.
Still no gap is longer than that of the slow NIC: the other NICs send a little early into free buffers, or receive a
request sooner. What a NIC sends shows that its GPU is there. What it receives may not: a buffer fills without it. So
what is received decides only where what is sent does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.graphs import connected_components
from llmprism_tasks.numerics.robust import MAJORITY, relative_sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.later_work import length_ns
from llmprism_tasks.stages.diagnosis.compute.own_baseline import quick_steps
from llmprism_tasks.stages.diagnosis.compute.slow_compute import finding_rows
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import own_work
from llmprism_tasks.stages.diagnosis.step_times.unexplained import effects_only
from llmprism_tasks.stages.timeline.placement import NIC, STEP
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.nic_pairs import PAIR

EQUALLY_LONG = 0.998
"""Share of a step's longest compute gap from which another NIC's gap counts as equally long. Both ends of a transfer
see it begin within some microseconds, and exchange a hundred times a step."""

LAST_BY_CHANCE = 0.001
"""Probability below which a NIC's being last so often is no chance. Few jobs are slower for another reason, and at most
some hundred NICs of a job are compared."""

SENT_EARLY = 0.3
"""Share of a NIC's mean burst below which a burst was sent early. The buffers of a channel hold 4 MB; its share of a
layer of a small sharded model is 15 MB. Other small bursts may be mistaken for early ones; compute gaps are then too
short, but equally so in all steps."""


def find(found: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the NIC that arrives last in jobs that became slower and have no other finding.

    Parameters
    ----------
    found : rows of `evidence.FINDING_SCHEMA` from all other detectors. A job with any finding but `cross_step` or a
        `straggler` of the whole job is left out: that fault may be what makes the compute gaps grow.

    Returns
    -------
    rows of `slow_compute`; rows of `straggler` where NICs of several hosts arrive last together, so that the slow one
    cannot be told from the others
    """
    slower = effects_only(found)
    if slower.is_empty():
        return slower
    slower = slower.select("job_id", "severity")
    sent, seen = (last_arrivals(slower, evidence, settings, sent_only=only) for only in (True, False))
    as_before = sent.filter("as_before").select("job_id")
    sent, seen = (last.filter("is_new").join(as_before, on="job_id", how="anti") for last in (sent, seen))
    both = sent.join(seen, on=NIC, how="semi")
    silent = seen.join(sent, on="job_id", how="anti")
    sent = uncontradicted(sent, seen)
    alone = [_filter_by_host_count(last, evidence, one=True) for last in (sent, both, silent)]
    several = [
        _of_one_exchange(_filter_by_host_count(last, evidence, one=False), evidence) for last in (both, sent, silent)
    ]
    named = _first_frame_per_job(alone)
    return finding_rows(named, _first_frame_per_job([named, *several]).join(named, on="job_id", how="anti"), evidence)


def uncontradicted(sent: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Return the NICs that are last by what is sent, but of jobs in which all traffic shows others and none of them.

    In a ring that waits, who begins first and who begins last differ by less than a thousandth of a step. A NIC that is
    longer without sending than those of all other hosts waits for none of them, whatever buffers have received.

    Parameters
    ----------
    sent, seen : as `last_arrivals` returns, by what is sent, and by all that is sent and received
    """
    shown = sent.join(seen, on=NIC, how="semi").select("job_id")
    others = seen.join(shown, on="job_id", how="anti")
    alone = sent.filter(pl.col("rival") < EQUALLY_LONG)
    others = others.join(alone, on="job_id", how="anti")
    return sent.join(others, on="job_id", how="anti")


def _filter_by_host_count(last: pl.DataFrame, evidence: Evidence, *, one: bool) -> pl.DataFrame:
    """Return the NICs of jobs whose last NICs are all of one host, or those of several."""
    hosts = last.join(evidence.members, on=NIC).group_by("job_id").agg(one=pl.col("host").n_unique() == 1)
    return last.join(hosts.filter(pl.col("one") == one), on="job_id", how="semi")


def _of_one_exchange(last: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Return the NICs of jobs whose last NICs are all of one ring or host, or exchange data with each other.

    NICs that have no exchange in common are late together because all of them wait, such as for a slow ring.
    """
    if last.is_empty():
        return last
    hosts = evidence.members.select(*NIC, "host")
    nics = last.join(hosts, on=NIC, how="left", maintain_order="left").with_row_index("nic")
    sent = nic_pairs.named(evidence.of_jobs(last["job_id"]).select("job_id", *PAIR).unique())
    ends = [nics.select("job_id", pl.col("nic").alias(f"{end}_nic"), pl.col("addr").alias(end)) for end in PAIR]
    direct = sent.join(ends[0], on=["job_id", PAIR[0]]).join(ends[1], on=["job_id", PAIR[1]])
    links = [direct.select("src_addr_nic", "dst_addr_nic")]
    for group in ("component", "host"):
        known = nics.filter(pl.col(group).is_not_null())
        links.append(known.select(src_addr_nic="nic", dst_addr_nic=pl.col("nic").first().over("job_id", group)))
    pairs = pl.concat(links)
    linked = pl.Series("linked", connected_components(pairs["src_addr_nic"], pairs["dst_addr_nic"], nics.height))
    one = (
        nics.select("job_id", linked).group_by("job_id").agg(pl.col("linked").n_unique()).filter(pl.col("linked") == 1)
    )
    return last.join(one, on="job_id", how="semi", maintain_order="left")


def _first_frame_per_job(found: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return for each job the rows of the first frame that has any."""
    kept = found[0]
    for more in found[1:]:
        kept = pl.concat([kept, more.join(kept, on="job_id", how="anti")])
    return kept


def last_arrivals(
    slower: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings, *, sent_only: bool = False
) -> pl.DataFrame:
    """Return the NICs with the longest compute gaps in nearly all slow steps of their jobs.

    Their gaps grew by most of what the step lost; the gaps of NICs beside a slow transfer did not.

    Parameters
    ----------
    slower : `job_id`, `severity` (ratio by which the job's slow steps are longer)
    sent_only : as for `compute_gap_work`

    Returns
    -------
    the columns of `slow_nics`, with `is_new`: whether they arrived last in quick steps no more often than by chance,
    and `as_before`: whether they did in nearly all of those, too. Then all compute longer, as over longer samples, and
    who is as late now waits for them. Several NICs of a job may have equally long gaps; the slow one is then unknown.
    """
    quick = evidence.once(quick_steps, settings)
    usual = quick.group_by("job_id").agg(usual_ns=length_ns().median())
    # A slow step is nearer to the length of the slow run, in this window or its look-back, than to a quick step.
    slow = length_ns() >= (1 + pl.col("severity") / 2) * pl.col("usual_ns")
    steps = (
        evidence.steps.join(slower, on="job_id")
        .join(usual, on="job_id")
        .join(quick.select(*STEP, quick=pl.lit(value=True)), on=STEP, how="left")
        .with_columns(slow=slow, quick=pl.col("quick").fill_null(value=False))
        .filter(pl.col("slow") != pl.col("quick"))
    )
    steps = _steps_of_all(steps, evidence)
    flows = evidence.heard(evidence.of_jobs(slower["job_id"]))
    work = own_work(flows, steps, evidence.groups, early=SENT_EARLY, sent_only=sent_only)
    of_step = pl.col("own_ns").max().over("job_id", "step_index")
    marked = _with_rivals(work.filter(pl.col("last_stage").is_null()), evidence).with_columns(
        last=(pl.col("own_ns") >= EQUALLY_LONG * of_step) | pl.col("of_last_host"), length_ns=length_ns()
    )
    return _summarise_nics(marked, settings)


def _steps_of_all(steps: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Add the steps of members whose own ends of steps are not known, as between most of the others.

    Where a ring of gradients takes the ways of a ring that exchanges in every layer, a member may move nothing but
    exchanges. Without it another one would be the last of those that are seen.

    Parameters
    ----------
    steps : as `Evidence.steps`, with more columns that are the same for all members of a job
    """
    step = ["job_id", "step_index"]
    times = pl.col("start_ns", "end_ns")
    typical = steps.group_by(step).agg(
        pl.exclude("addr", "start_ns", "end_ns").first(), times.quantile(MAJORITY, "lower").cast(pl.Int64)
    )
    unseen = evidence.members.select(NIC).join(typical, on="job_id").join(steps, on=STEP, how="anti")
    return pl.concat([steps, unseen.select(steps.columns)])


def _with_rivals(work: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Add the longest compute gap of any NIC of another host in the step, `rival_ns` (NULL if there is none), and
    whether all NICs of the NIC's own host are later, `of_last_host`.

    GPUs of a host that compute one share of the model wait for each other, and each of them is last in its own ring.
    """
    step, host = ["job_id", "step_index"], ["job_id", "step_index", "host"]
    placed = work.join(evidence.members.select(*NIC, "host"), on=NIC, how="left", maintain_order="left")
    hosts = placed.group_by(host).agg(least=pl.col("own_ns").min(), most=pl.col("own_ns").max())
    longest, next_ns = pl.col("most").max().over(step), pl.col("most").top_k(2).min().over(step)
    rival = pl.when(pl.len().over(step) > 1, pl.col("most") == longest).then(next_ns)
    rivals = hosts.with_columns(rival_ns=rival.when(pl.len().over(step) > 1).then(longest))
    last = (pl.col("least") > pl.col("rival_ns")).fill_null(value=False)
    found = rivals.select(*host, "rival_ns", of_last_host=last)
    return placed.join(found, on=host, how="left", maintain_order="left").drop("host")


def _summarise_nics(work: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Summarise each NIC's slow and quick steps, and keep NICs that are last in nearly all slow steps."""
    of_job = work.filter("quick").group_by("job_id").agg(by_place=pl.col("last").mean())
    own, past = (pl.col("own_ns").filter(which) for which in ("slow", "quick"))
    grown = own.median() - past.median()
    lengths = [pl.col("length_ns").filter(which).median() for which in ("slow", "quick")]
    summed = work.group_by(NIC).agg(
        pl.col("start_ns").filter("slow").min(),
        pl.col("end_ns").filter("slow").max(),
        pl.col("component").first(),
        own_ns=own.median(),
        excess=grown / past.median(),
        loss=grown / lengths[0],
        longer=(lengths[0] - lengths[1]) / lengths[0],
        noise=relative_sigma(past),
        slow=pl.col("last").filter("slow").sum().cast(pl.Int64),
        steps=pl.col("slow").sum().cast(pl.Int64),
        usually=pl.col("last").filter("quick").mean(),
        rival=(pl.col("rival_ns") / pl.col("own_ns")).filter("slow").median(),
    )
    chance = pl.max_horizontal("by_place", "usually")
    by_chance = binomial.tail_bound(pl.col("slow"), pl.col("steps"), chance) > LAST_BY_CHANCE
    return (
        summed.join(of_job, on="job_id")
        .filter(
            pl.col("slow") >= settings.least_steps,
            pl.col("slow") >= settings.persistence * pl.col("steps"),
            pl.col("loss") >= pl.max_horizontal(settings.least_effect, MAJORITY * pl.col("longer")),
        )
        .with_columns(
            score=pl.col("excess") / pl.max_horizontal("noise", settings.least_noise),
            by_past=True,
            at_first=False,
            is_new=(chance < settings.persistence) & ~by_chance,
            as_before=pl.col("usually") >= settings.persistence,
        )
        .sort(NIC)
    )
