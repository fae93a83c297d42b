"""Best pace: whether the devices on a path let data pass as quickly as they do elsewhere, whether or not it costs time.

Waiting, computing, congestion and records that a collector merged make a transfer slower now and then, but nothing
makes it quicker than its slowest device allows. So of each path of each pair only the quickest large record of a step
counts. It is compared with that of its peers, which do the same work at the same time, and with its own past.

Like is compared with like: a record of another size shows another part of a step. Whether the first chunk of a tree's
message has a record of its own depends on how long the rest waits for other members, and is no matter of the path.
Records of the size that shows the quickest pace tell most of a path.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from statistics import NormalDist

import polars as pl

from llmprism_tasks.numerics.robust import sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.network.hop_comparison import LEAST_SIGMA
from llmprism_tasks.stages.diagnosis.network.path_pace import HOP_ON_PATH, placed

NOW, PAST = 12, 3
"""Most steps of a job that show its pace now (the last ones) and before (the look-back's first ones)."""

BEST_PACE_QUANTILE = 0.1
"""Quantile over the steps of the best paces that counts. A member of a ring shows its own pace only in steps in which
it is early. Of twelve steps the second best counts, as the time of one record may be wrong."""

ALIKE_RATIO = 1.1
"""Ratio of two successive sizes or loads up to which they are alike; jitter and headers change sizes by less."""

LEAST_PEERS = 4
"""Least hops that are compared with each other: of four, one that is slow does not move the median much."""

UNKNOWN_STAGE = -1
"""The pipeline stage where none is known."""


def verdicts(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Judge each path of each hop of all jobs by its best pace.

    Returns
    -------
    sorted by `HOP_ON_PATH`, with `switch_path`, `now` (ns per byte), `usual` (of its peers or its past, the quicker
    one), `ratio`, `slow`, `ring_bound` (whether the hop is of a ring, whose hops may wait for its slowest), `innocent`,
    `proven` (both False), `by_peers` and `by_past` (logarithms of the ratios to either, NULL without one), and
    `of_class` (the same number for peers). Paths that are neither slow nor quick, as those without peers and past, are
    absent.
    """
    steps = _steps_to_look_at(evidence.history, settings)
    return _judged(_measured(_best_by_step(evidence, steps, settings), settings), evidence, settings)


def earlier_verdicts(evidence: Evidence, settings: DiagnosisSettings) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Judge the paths by earlier steps of the window, for what was slow and is well again at its end.

    The steps are judged in blocks of as many as show the pace now. Two blocks begin half a block apart, or as long as a
    slowdown must last to be told, so a window has few of them. A block is judged in the window in which it ends. All
    blocks together are as seldom wrong as the last steps alone: of n blocks, each asks for an n-th of the chance.

    Yields
    ------
    for each block, the latest first: `job_id`, `start_ns`, `end_ns` of its steps, and what `verdicts` returns of it
    """
    numbered = _numbered(evidence.history)
    blocks: list[pl.DataFrame] = []
    while not (block := _block(numbered, len(blocks) + 1, settings)).is_empty():
        blocks.append(block)
    if not blocks:
        return
    strict = dataclasses.replace(settings, sigmas=_sigmas_of_several(settings.sigmas, len(blocks)))
    every = pl.concat(blocks).unique(["job_id", "end_ns"]).sort("job_id", "start_ns")
    by_step = _best_by_step(evidence, every, settings).drop("slow")
    for block in blocks:
        spans = block.filter("slow").group_by("job_id").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        mine = by_step.join(block.select("job_id", "slow", step_ns="end_ns"), on=["job_id", "step_ns"])
        yield spans, _judged(_measured(mine, settings), evidence, strict)


def _sigmas_of_several(sigmas: float, questions: int) -> float:
    """Return the deviations that chance exceeds in one of several questions as seldom as `sigmas` in one."""
    chance = math.erfc(sigmas / math.sqrt(2)) / 2 / questions
    return max(-NormalDist().inv_cdf(chance), sigmas) if chance > 0 else sigmas


def _judged(measured: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the verdicts on measured paces, as `verdicts` does."""
    if measured.is_empty():
        return _judge_paces(
            measured.with_columns(*(pl.lit(None, pl.Float64).alias(name) for name in COMPARISON_COLUMNS)), settings
        )
    of_class = measured.pipe(_with_classes, evidence).with_columns(pace=pl.col("now").log())
    others = pl.len().over("class") >= LEAST_PEERS
    typical = pl.col("pace").median().over("class")
    compared = of_class.with_columns(
        by_peers=pl.when(others).then(pl.col("pace") - typical),
        peers_sigma=sigma(pl.col("pace")).over("class"),
        by_past=pl.col("pace") - pl.col("past").log(),
    )
    usual = pl.col("pace") - pl.max_horizontal("by_peers", "by_past")
    telling = compared.sort(usual, "records", nulls_last=True).unique("place", keep="first", maintain_order=True)
    return _judge_paces(telling.with_columns(past_sigma=sigma(pl.col("by_past")).over("job_id", "kind")), settings)


def became_slow(settings: DiagnosisSettings) -> pl.Expr:
    """Select the verdicts on paths that are slow against their own past, not only against peers."""
    return (pl.col("by_past") >= math.log(settings.latent_rate)).fill_null(value=False)


COMPARISON_COLUMNS = ("by_peers", "peers_sigma", "by_past", "past_sigma", "class")


def _judge_paces(compared: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Decide; `by_peers` and `by_past` are logarithms of ratios, with the deviations that they usually have."""
    least = pl.lit(settings.latent_rate).log()
    far = [
        pl.col(by) >= pl.max_horizontal(least, settings.sigmas * pl.col(spread).clip(LEAST_SIGMA))
        for by, spread in (("by_peers", "peers_sigma"), ("by_past", "past_sigma"))
    ]
    most = pl.max_horizontal("by_peers", "by_past")
    slow = pl.any_horizontal(far).fill_null(value=False)
    return (
        compared.with_columns(slow=slow, ratio=most.exp())
        .filter(pl.col("slow") | (most < pl.lit(settings.slow_rate).log()))
        .select(
            *HOP_ON_PATH,
            "switch_path",
            "now",
            usual=pl.col("now") / pl.col("ratio"),
            ratio="ratio",
            slow="slow",
            ring_bound=pl.col("kind") == "dp",
            innocent=pl.lit(value=False),
            proven=pl.lit(value=False),
            near=pl.lit(0.0),
            by_peers="by_peers",
            by_past="by_past",
            of_class="class",
        )
        .sort(HOP_ON_PATH)
    )


def _best_by_step(evidence: Evidence, steps: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the best pace of each place and size of its records in each step.

    Columns: `HOP_ON_PATH`, `switch_path`, `place` and `records` (their numbers), `step_ns`, `slow`, `best` (ns per
    byte) and `size` (bytes of the place in the step).
    """
    pace = (pl.col("flow_end_ns") - pl.col("flow_start_ns")) / pl.col("bytes")
    large = placed(evidence, steps, least_bytes=settings.own_bytes)
    took_time = large.filter(pl.col("flow_end_ns") > pl.col("flow_start_ns"))
    of_kind = took_time.with_columns(pl.struct("job_id", "kind").rank("dense").alias("class"))
    records = _split_classes(of_kind, "bytes").rename({"class": "records"})
    return (
        records.group_by("place", "records", "step_ns")
        .agg(pl.col(*HOP_ON_PATH, "switch_path", "slow").first(), best=pace.min(), size=pl.col("bytes").sum())
        .with_columns(pl.col("size").sum().over("place", "step_ns"))
    )


def _measured(by_step: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the best pace of each place and size of its records.

    Columns: `HOP_ON_PATH`, `switch_path`, `place` and `records` (their numbers), `now`, `past` (NULL if not seen), ns
    per byte, and `size` (bytes of the place in a step). What is seen in too few steps now is absent.
    """
    now = pl.col("slow")
    return (
        by_step.group_by("place", "records")
        .agg(
            pl.col(*HOP_ON_PATH, "switch_path").first(),
            now=pl.col("best").filter(now).quantile(BEST_PACE_QUANTILE, "lower"),
            past=pl.when((~now).sum() >= settings.least_steps).then(
                pl.col("best").filter(~now).quantile(BEST_PACE_QUANTILE, "lower")
            ),
            size=pl.col("size").filter(now).median(),
            seen=now.sum(),
        )
        .filter(pl.col("seen") >= settings.least_steps)
        .drop("seen")
    )


def _numbered(history: pl.DataFrame) -> pl.DataFrame:
    """Add `number` and `from_end` to steps: their places in their job's history, from its first step and its last."""
    number, count = pl.int_range(pl.len()).over("job_id"), pl.len().over("job_id")
    ordered = history.sort("job_id", "start_ns")
    return ordered.with_columns(number=number, from_end=count.cast(pl.Int64) - number)


def _block(numbered: pl.DataFrame, back: int, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the steps of each job that is judged by steps before its last ones, in the form of `_steps_to_look_at`.

    Parameters
    ----------
    back : how many blocks before the last steps
    """
    usual_ns = (pl.col("end_ns") - pl.col("start_ns")).median().over("job_id").clip(1)
    apart = pl.max_horizontal(pl.lit(NOW // 2), (settings.least_lasting_s * 1e9 / usual_ns).ceil())
    ends_in_window = pl.col("current").sum().over("job_id") > back * apart
    return _with_past(numbered.filter(ends_in_window), (pl.col("from_end") - back * apart).is_between(1, NOW))


def _steps_to_look_at(history: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the steps to look at, in the form that `path_pace.placed` takes.

    `slow` marks those that show the pace now: the window's, and where these are too few, some before them.
    """
    late = (pl.col("from_end") <= NOW) & (pl.col("current") | (pl.col("from_end") <= settings.least_steps))
    return _with_past(_numbered(history), late)


def _with_past(numbered: pl.DataFrame, now: pl.Expr) -> pl.DataFrame:
    """Return the steps that show the pace now, marked as `slow`, and the first ones of the look-back."""
    marked = numbered.with_columns(slow=now)
    early = ~pl.col("slow") & (pl.col("number") < PAST) & ~pl.col("current")
    return marked.filter(pl.col("slow") | early).select("job_id", "start_ns", "end_ns", "current", "slow")


def _with_classes(measured: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Add `class`: places of one class do the same work between NICs that do the same work, in records of one size.

    They are of one job and kind, go from one pipeline stage to another, across as many switches, carry as much in a
    step, and so do all places together that leave the sender and that reach the receiver.
    """
    carried = measured.group_by("place").agg(pl.col(*HOP_ON_PATH, "switch_path").first(), pl.col("size").median())
    classes = _classes_of_places(carried, evidence).select("place", of_place="class")
    both = pl.struct("of_place", "records").rank("dense")
    return measured.join(classes, on="place").with_columns(both.alias("class")).drop("of_place")


def _classes_of_places(places: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Add `class` to places, whatever the sizes of their records."""
    stages = evidence.members.select("job_id", "addr", stage=pl.col("pp_stage").fill_null(UNKNOWN_STAGE))
    ends = ("src_addr", "dst_addr")
    for end in ends:
        places = places.join(stages.rename({"addr": end, "stage": f"{end}_stage"}), on=["job_id", end], how="left")
    load = [pl.col("size").sum().over("job_id", end).alias(f"{end}_load") for end in ends]
    length = pl.col("switch_path").list.len().fill_null(0)
    role = ["job_id", "kind", *(f"{end}_stage" for end in ends), "switches"]
    numbered = places.with_columns(*load, switches=length).with_columns(pl.struct(role).rank("dense").alias("class"))
    for name in ("size", *(f"{end}_load" for end in ends)):
        numbered = _split_classes(numbered, name)
    return numbered


def _split_classes(places: pl.DataFrame, name: str) -> pl.DataFrame:
    """Split each class where successive values differ by more than values that are alike."""
    ordered = places.sort("class", name)
    new = (pl.col("class") != pl.col("class").shift()) | (pl.col(name) > ALIKE_RATIO * pl.col(name).shift())
    return ordered.with_columns(new.fill_null(value=True).cum_sum().alias("class"))
