"""Path pace: time per byte of each pair of NICs and path, in slow steps and in healthy ones.

A pair of pipeline stages has its own pace; all hops of a ring have the pace of the slowest. The duration of a record
may include waiting for the peer or the ring, but it does so in healthy steps as well. So each path is compared with
itself.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from llmprism_tasks.numerics import asof, ragged
from llmprism_tasks.numerics.graphs import connected_components
from llmprism_tasks.numerics.intervals import all_under_way, end_of_earlier
from llmprism_tasks.numerics.robust import MAJORITY, Integers
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.traffic import nic_pairs

KINDS = ("dp", "pp", "ep", "cp")
RING = ["job_id", "kind", "unit"]
HOP = [*RING, "src_addr", "dst_addr"]
"""A hop is one pair within its unit. The unit is a ring, named by its lowest address, or the pair itself. Hops that go
around a ring the other way are a unit of their own (`ring_of_unit`): Gloo gathers parameters in the one direction and
reduces gradients in the other, at different times of a step."""

OTHER_WAY = ", the other way"
"""What the name of a ring's unit ends with, of hops that go around it otherwise than its first ones."""

HOP_ON_PATH = [*HOP, "path"]
"""Queue pairs of a hop are hashed to different spines; each path has its own pace."""


def placed(evidence: Evidence, steps: pl.DataFrame, *, least_bytes: int = 0) -> pl.DataFrame:
    """Assign the records to the steps in which they lie.

    What began in an earlier step than it ends in belongs to none: the collector joined it over the end of a step, so
    that its time holds the computing in between, or it moved data of both.

    Parameters
    ----------
    steps : steps of the jobs to look at, as `slow_steps.in_trouble` returns
    least_bytes : least size of a record

    Returns
    -------
    the columns of `HOP_ON_PATH`, `flow_start_ns`, `flow_end_ns`, `bytes`, `switch_path`, `step_ns` (end of the step),
    `slow`, and numbers that identify the hop (`pair`) and the path of the hop (`place`)
    """
    of_jobs = pl.col("job_id").is_in(steps["job_id"].unique().implode())
    wanted = evidence.flows.filter(of_jobs, pl.col("kind").is_in(KINDS), pl.col("bytes") >= least_bytes)
    flows = nic_pairs.in_order(wanted)
    pairs, offsets = nic_pairs.pairs_of(flows, ["job_id", "kind", *nic_pairs.PAIR]), nic_pairs.starts_of_pairs(flows)
    pair = np.repeat(np.arange(pairs.height), np.diff(offsets))
    starts, ends = (flows[name].to_numpy() for name in ("flow_start_ns", "flow_end_ns"))
    step = _step_rows(starts, ends, offsets, pairs.select("job_id"), steps)
    inside = step >= 0
    of_step = steps.select("slow", step_ns="end_ns")[step[inside]]
    unit = _units(pairs, evidence.groups).gather(pair[inside])
    records = evidence.with_paths(flows.filter(pl.Series(inside))).with_columns(unit, *of_step)
    path = pl.col("switch_path").list.join(" ")
    place = pl.col("pair").cast(pl.Int64) * 2**32 + pl.col("path").cast(pl.Categorical).to_physical().fill_null(-1)
    return records.with_columns(path=path).select(
        *HOP_ON_PATH, "flow_start_ns", "flow_end_ns", "bytes", "switch_path", "step_ns", "slow", "pair", place=place
    )


def with_units(flows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Add the `unit` of each flow, a text; the flows come in the order of their pairs.

    Parameters
    ----------
    flows, groups : as `Evidence` has them
    """
    ordered = nic_pairs.in_order(flows)
    pairs = nic_pairs.pairs_of(ordered, ["job_id", "kind", *nic_pairs.PAIR])
    of_flow = np.repeat(np.arange(pairs.height), np.diff(nic_pairs.starts_of_pairs(ordered)))
    return ordered.with_columns(_units(pairs, groups).gather(of_flow))


def _step_rows(
    starts: Integers, ends: Integers, offsets: Integers, jobs: pl.DataFrame, steps: pl.DataFrame
) -> Integers:
    """Return the row of `steps` in which each record lies; -1 if it lies in none.

    Parameters
    ----------
    starts, ends : times of the records of all pairs, ns; pair i has the records `offsets[i]` to `offsets[i + 1]`
    jobs : `job_id` of each pair
    steps : sorted by `job_id` and time
    """
    rows = steps.with_row_index("row").group_by("job_id").agg(low=pl.col("row").first(), high=pl.col("row").last() + 1)
    bounds = jobs.join(rows, on="job_id", how="left", maintain_order="left").select(
        pl.col("low", "high").cast(pl.Int64)
    )
    begins, until = (steps[name].to_numpy() for name in ("start_ns", "end_ns"))
    found = asof.first_from(ends, offsets, until, *(bounds[name].to_numpy() for name in bounds.columns))
    return np.where((found >= 0) & (starts >= begins[found]) & (ends > begins[found]), found, -1)


def _units(pairs: pl.DataFrame, groups: pl.DataFrame) -> pl.Series:
    """Return the `unit` of each pair."""
    rings = groups.select("job_id", src_addr="addr", ring=pl.col("addr").min().over("job_id", "component"))
    pair = pl.concat_str("src_addr", "dst_addr", separator=" to ")
    known = pairs.join(rings, on=["job_id", "src_addr"], how="left", maintain_order="left")
    known = known.with_columns(way=_ways(known))
    first = pl.col("way").filter(pl.col("kind") == "dp").first().over("job_id", "ring")
    way = pl.when(pl.col("way") == first).then(pl.lit("")).otherwise(pl.lit(OTHER_WAY))
    ring = pl.concat_str("ring", way)
    unit = pl.when(pl.col("kind") == "dp").then(pl.coalesce(ring, pair)).otherwise(pair)
    return known.select(unit=unit).to_series()


def _ways(pairs: pl.DataFrame) -> pl.Series:
    """Return the number of each pair's way around: that of pairs of gradients that go on from one to the next, and turn
    back only where no other goes on. The two directions of a ring of three and more are two ways, a line is one."""
    hops = pairs.select("job_id", *nic_pairs.PAIR).with_row_index("hop").filter(pairs["kind"] == "dp")
    onward = hops.join(
        hops.select("job_id", src_addr="dst_addr", came_from="src_addr", before="hop"), on=["job_id", "src_addr"]
    )
    turns = pl.col("dst_addr") == pl.col("came_from")
    onward = onward.filter(~turns | turns.all().over("before"))
    return pl.Series(connected_components(onward["before"], onward["hop"], pairs.height))


def ring_of_unit() -> pl.Expr:
    """Return the lowest address of the ring that a `unit` is a way around."""
    return pl.col("unit").str.strip_suffix(OTHER_WAY)


def timed(records: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the records that are long enough to measure a pace."""
    return records.filter(pl.col("bytes") >= settings.least_bytes, pl.col("flow_end_ns") > pl.col("flow_start_ns"))


def transfers(records: pl.DataFrame) -> pl.DataFrame:
    """Return how long each path of a ring takes for its bytes in each step, with the pauses within transfers.

    A slow uplink that many hops share cuts their traffic into short records with pauses, and each record shows the pace
    between two pauses. A pause is within a transfer if it is no longer than a transfer of that path usually takes. The
    longest pause of each transfer does not count: then a ring waits for a member that comes late.

    Parameters
    ----------
    records : as `placed` returns

    Returns
    -------
    `HOP_ON_PATH`, `switch_path`, `place`, `pair`, `step_ns`, `slow`, `lasted_ns`, `bytes`
    """
    of_step = ["place", "step_ns"]
    duration, size = pl.col("duration"), pl.col("bytes").filter(~pl.col("slow"))
    ordered = duration.filter(~pl.col("slow"))
    most = size.sort_by(ordered).cum_sum() >= size.sum() / 2
    before = end_of_earlier("flow_end_ns").over(of_step)
    length = pl.col("flow_end_ns") - pl.col("flow_start_ns")
    rings = records.filter(pl.col("kind") == "dp").with_columns(duration=length)
    span = pl.col("flow_end_ns").max() - pl.col("flow_start_ns").min()
    usual = rings.group_by("place").agg(usual_ns=ordered.sort().filter(most).first())
    return (
        rings.join(usual, on="place")
        .sort(*of_step, "flow_start_ns", "flow_end_ns")
        .with_columns(pause_ns=(pl.col("flow_start_ns") - before).clip(0))
        .with_columns(transfer=(pl.col("pause_ns") > pl.col("usual_ns")).fill_null(value=True).cum_sum())
        .group_by("transfer")
        .agg(
            pl.col(*of_step, *HOP_ON_PATH, "switch_path", "pair", "slow").first(),
            pl.col("bytes").sum(),
            lasted_ns=span - pl.col("pause_ns").slice(1).max().fill_null(0),
        )
        .group_by(of_step)
        .agg(pl.col(*HOP_ON_PATH, "switch_path", "pair", "slow").first(), pl.col("lasted_ns", "bytes").sum())
    )


def waits(records: pl.DataFrame) -> pl.DataFrame:
    """Return how long bytes wait before each hop of a ring in each step: `HOP`, `step_ns`, `wait_ns`.

    A member of a ring sends on what it has received. So the mean time of what it sends, less that of what it receives,
    is how long its bytes wait. They wait before the hop that is slow; what the others receive they send at once, and
    their own part before. The waits of a ring add up to 0. Where a sender receives over several hops, its group is no
    single ring, and all of its hops are absent.

    Parameters
    ----------
    records : as `placed` returns
    """
    middle = pl.col("flow_start_ns") / 2 + pl.col("flow_end_ns") / 2 - pl.col("step_ns")
    sent = (
        records.filter(pl.col("kind") == "dp")
        .group_by(*HOP, "step_ns")
        .agg(mean_ns=(middle * pl.col("bytes")).sum() / pl.col("bytes").sum())
    )
    received = sent.select(*RING, "step_ns", before="src_addr", src_addr="dst_addr", got_ns="mean_ns")
    return (
        sent.join(received, on=[*RING, "step_ns", "src_addr"])
        .filter(pl.col("before") != pl.col("dst_addr"))
        .filter((pl.len().over(*HOP, "step_ns") == 1).all().over(*RING, "step_ns"))
        .select(*HOP, "step_ns", wait_ns=pl.col("mean_ns") - pl.col("got_ns"))
    )


def paces(records: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the pace of each path of each hop in each step.

    Parameters
    ----------
    records : as `placed` returns

    Returns
    -------
    `HOP_ON_PATH`, `switch_path`, `step_ns`, `slow`, `place`, `pace` (ns per byte), `own` (pace of the first large
    record, NULL without one), `own_least` (the same, without the time before its sender received anything), `pushed`
    (whether that record was over before another hop of the ring began) and, of rings whose records do not show how slow
    they are, `wait_ns` (as `waits` returns). A record that is sent before all members of the ring have arrived waits
    for no other member than those that its sender receives from. A record that goes on after that is no slower than
    since then: before, its sender waited for a member.
    """
    shown = _record_paces(timed(_with_moving_times(records), settings), settings)
    lasted = transfers(records).filter(pl.col("bytes") >= settings.least_bytes, pl.col("lasted_ns") > 0)
    whole = lasted.with_columns(pace=pl.col("lasted_ns") / pl.col("bytes")).drop("lasted_ns", "bytes", "pair")
    in_bursts = _rings_in_bursts(shown, whole, settings)
    of_bursts = whole.join(in_bursts, on=RING, how="semi").with_columns(
        own=pl.lit(None, pl.Float64), own_least=pl.lit(None, pl.Float64), pushed=pl.lit(value=False)
    )
    by_record = _without_waits(shown.join(in_bursts, on=RING, how="anti"))
    every = pl.concat([by_record, of_bursts.select(by_record.columns)])
    waiting = waits(records.join(in_bursts, on=RING, how="semi"))
    return every.join(waiting, on=[*HOP, "step_ns"], how="left", maintain_order="left")


def _with_moving_times(records: pl.DataFrame) -> pl.DataFrame:
    """Add `moving_ns` to records: how long each lasted since all hops of its ring were under way.

    Who comes early sends what buffers hold and waits for the last member. A collector that joins that with what follows
    makes the hops that wait look slow, and the hops of the last member quick.
    """
    if records.is_empty():
        return records.with_columns(moving_ns=pl.lit(0, pl.Int64))
    ordered = records.sort(*RING, "pair", "flow_start_ns", "flow_end_ns", maintain_order=True)
    unit = ordered.select(pl.struct(RING).rle_id()).to_series().to_numpy()
    starts, ends, pair = (ordered[name].to_numpy() for name in ("flow_start_ns", "flow_end_ns", "pair"))
    offsets = ragged.bounds(unit, pair)
    since_ns = all_under_way(starts, ends, offsets, ragged.bounds(unit[offsets[:-1]]))
    return ordered.with_columns(moving_ns=pl.Series(ends - since_ns))


def _without_waits(by_step: pl.DataFrame) -> pl.DataFrame:
    """Return paces no slower than those since rings were under way (`moving`), in the measure of whole records."""
    pace, moving = (pl.col(name).filter(~pl.col("slow")).median().over("place") for name in ("pace", "moving"))
    least = pl.min_horizontal("pace", pl.col("moving") * pace / moving)
    return by_step.with_columns(pace=least).drop("moving")


def _rings_in_bursts(shown: pl.DataFrame, whole: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the rings whose records do not show how slow they are, for the slow hop sends in bursts: `RING`.

    Parameters
    ----------
    shown, whole : paces of records, and of transfers with the pauses in them
    """
    of_records = _slowdown_ratios(shown, settings).group_by(RING).agg(of_records=pl.col("ratio").max())
    # All hops of a slow ring take as long as its slowest one, so most must be slow. If one alone is, the collector
    # joined records of it over a pause.
    lasting = pl.col("ratio").quantile(MAJORITY, "higher")
    of_whole = _slowdown_ratios(whole, settings).group_by(RING).agg(of_whole=lasting)
    # Pauses vary more than paces, so a ring must be slower by as much as a device that costs no time.
    far = pl.col("of_whole").log() >= math.log(settings.latent_rate)
    unseen = (pl.col("of_records").log() < MAJORITY * pl.col("of_whole").log()).fill_null(value=True)
    return of_records.join(of_whole, on=RING, how="right").filter(far, unseen).select(RING)


def _slowdown_ratios(by_step: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return by which ratio each place is slower in slow steps: `RING`, `place`, `ratio`; of places seen often enough.

    A sender that may send only now and then cuts its own transfers: of what is long enough to measure, few are left.
    """
    now, usual = (pl.col("pace").filter(which).median() for which in (pl.col("slow"), ~pl.col("slow")))
    figures = by_step.group_by(*RING, "place").agg(ratio=now / usual, enough=is_seen_often(settings))
    return figures.filter("enough").drop("enough")


def is_seen_often(settings: DiagnosisSettings) -> pl.Expr:
    """Return whether a place is seen in enough slow steps and in enough healthy ones."""
    times = (which.sum() for which in (pl.col("slow"), ~pl.col("slow")))
    return pl.all_horizontal([number >= settings.least_steps for number in times])


def _record_paces(records: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    duration, large = pl.col("flow_end_ns") - pl.col("flow_start_ns"), pl.col("bytes") >= settings.own_bytes
    first = pl.col(*HOP_ON_PATH, "switch_path", "slow").first()
    by_pace = duration / pl.col("bytes")
    # The median over bytes, half of which move at this pace or quicker: a record that the collector joined over a pause
    # does not move it.
    pace, moving = (
        each.sort().filter(pl.col("bytes").sort_by(each).cum_sum() >= MAJORITY * pl.col("bytes").sum()).first()
        for each in (by_pace, pl.col("moving_ns") / pl.col("bytes"))
    )
    begin, end = pl.col("flow_start_ns"), pl.col("flow_end_ns")
    own, since_ns, over_ns = (
        pl.when(large).then(value).sort_by(begin, end).drop_nulls().first() for value in (by_pace, begin, end)
    )
    by_step = records.group_by("place", "step_ns").agg(
        first, pace=pace, moving=moving, own=own, since_ns=since_ns, over_ns=over_ns, begins_ns=begin.min()
    )
    begins = pl.col("begins_ns").min().over(*HOP, "step_ns")
    # Clocks of switches differ, so what was over shortly before may have been under way.
    early = pl.col("over_ns") + settings.least_work_ms * 1e6 <= pl.col("complete_ns")
    # What a member sends after its own part it has received. So its first record may have waited for who sends to it.
    came = by_step.group_by(*RING, "step_ns", src_addr="dst_addr").agg(came_ns=pl.col("begins_ns").max())
    waited = pl.when(pl.col("came_ns").is_between("since_ns", "over_ns")).then(pl.col("came_ns") - pl.col("since_ns"))
    moving = 1 - waited.fill_null(0) / (pl.col("over_ns") - pl.col("since_ns"))
    return (
        by_step.join(came, on=[*RING, "step_ns", "src_addr"], how="left", maintain_order="left")
        .with_columns(begins_ns=begins)
        .with_columns(complete_ns=pl.col("begins_ns").max().over(*RING, "step_ns"))
        .with_columns(pushed=early.fill_null(value=False), own_least=pl.col("own") * moving)
        .drop("since_ns", "over_ns", "begins_ns", "complete_ns", "came_ns")
    )


def extra(records: pl.DataFrame, hops: pl.DataFrame) -> pl.DataFrame:
    """Return how much longer each hop is busy in a slow step than in a healthy one: `HOP`, `extra_ns`.

    A hop is busy while any of its queue pairs has a record, even one too short to measure a pace; the median over the
    steps counts. A collector that cuts slow traffic into short records leaves out the pauses between them; then the
    healthy time, scaled by the hop's pace, is longer and counts instead. A ring is held up in the pauses of its
    transfers, too.

    Parameters
    ----------
    records : as `placed` returns
    hops : as `compared` returns
    """
    before = end_of_earlier("flow_end_ns").over("pair", "step_ns")
    busy = (pl.col("flow_end_ns") - pl.max_horizontal("flow_start_ns", before)).clip(0)
    by_step = (
        records.select("pair", "step_ns", "slow", "flow_start_ns", "flow_end_ns")
        .sort("flow_start_ns", "flow_end_ns")
        .with_columns(busy_ns=busy)
        .group_by("pair", "step_ns")
        .agg(pl.col("slow").first(), pl.col("busy_ns").sum())
    )
    slow, healthy = (pl.col("busy_ns").filter(which).median() for which in (pl.col("slow"), ~pl.col("slow")))
    figures = by_step.group_by("pair").agg(slow_ns=slow, healthy_ns=healthy).drop_nulls()
    longer = [
        pl.col("slow_ns") - pl.col("healthy_ns"),
        pl.col("healthy_ns") * (pl.col("ratio") - 1),
        pl.col("whole_ns"),
    ]
    lasted = [pl.col("lasted_ns").filter(which).median() for which in (pl.col("slow"), ~pl.col("slow"))]
    whole = transfers(records).group_by("place").agg(pl.col("pair").first(), whole_ns=lasted[0] - lasted[1])
    return (
        records.select("pair", *HOP)
        .unique("pair")
        .join(figures, on="pair")
        .join(whole.group_by("pair").agg(pl.col("whole_ns").max()), on="pair", how="left")
        .join(hops.group_by(HOP).agg(pl.col("ratio").median()), on=HOP, how="left", nulls_equal=True)
        .select(*HOP, extra_ns=pl.max_horizontal(*longer, 0.0))
        .sort(HOP)
    )
