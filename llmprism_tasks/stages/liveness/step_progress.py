"""Where a job stood when it fell silent: after a whole step, or cut off in the middle of one, and who was due first.

A job that ends in good order sends nothing after its last step, or only what follows each of its steps (the gathering
of parameters). Whatever else it sent is the beginning of a step that never ended. Steps before tell when each pair is
due to send the next byte of it: whoever is overdue for longest went quiet first, and the others wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import sigma
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division import completion
from llmprism_tasks.stages.step_division.division import divide
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.clusters import connected_nics
from llmprism_tasks.stages.traffic.opposite import opposite

LEAST_STEPS, LEAST_STEPS_NS = 6, 120 * NANOSECONDS_PER_SECOND
"""So many steps a job must have shown, or three over so long: the first ones are unlike others."""
TEMPLATES = 8
"""Steps that tell when each pair is due; a job's pace changes over more."""
PAUSE = 0.5
"""Ratio of a step's longest silence from which a silence ends what follows the step before."""
TWINS = 2.0
"""Ratio of what the steps most alike differ by: half of them differ by more, and hardly one by twice as much."""
LOST = 0.25
"""Ratio of a pipeline's last messages that a bad collector may not have seen: one record of the four that a stage of
four tensor-parallel ranks sends. Ranks that work in lock step have all sent, or none."""
SAME_RHYTHM = 2**0.5
"""Factor within which two periods are of one rhythm: the shortest step taken for another, of two micro-batches, is two
periods long."""


@dataclass(frozen=True)
class CutOff:
    """Where a job stood when it fell silent.

    Attributes
    ----------
    midway : whether it was in the middle of a step; else it ended in good order, and nothing is due
    ended_ns : end of its last whole step
    silent_ns : end of the last flow
    period_ns : typical step
    even : whether all who had more to send have come equally far in it, or to where it pauses in other steps, as a job
        does that ends in order and whose parameters are gathered in the next step
    pairs : the pairs that take part in its steps: `src_addr`, `dst_addr`, `usual` (bytes of a step), `last_ns` (end of
        the last flow of the unfinished one; NULL without one)
    due : each pair that had more to send: `src_addr`, `dst_addr`, `late_ns` (for how long it had been due when the job
        fell silent; negative if it was not), `noise_ns` (robust deviation), `sent` (bytes of the unfinished step),
        `last_ns` (end of the last flow of the step; NULL without one)
    """

    midway: bool
    ended_ns: int
    silent_ns: int
    period_ns: int
    even: bool
    pairs: pl.DataFrame
    due: pl.DataFrame


def cut_off(bulk: pl.DataFrame, silent_ns: int, settings: Settings) -> CutOff | None:
    """Say where a job stood when it fell silent; None if it never had a rhythm.

    Parameters
    ----------
    bulk : the job's bulk flows that began before the silence, with `job_id`, named
    silent_ns : end of the last of them
    """
    moment = Window(silent_ns + 1 - settings.window.length_ns, settings.window.length_ns)
    division = divide(bulk, moment, settings)
    if division is None:
        return None
    whole = _whole_steps(division.endpoints, settings)
    if whole is None:
        return None
    endpoints = division.endpoints.join(whole, on="step", how="semi")
    job_steps = division.job_steps.join(whole, on="step", how="semi").sort("step")
    placed = completion.step_of_flows(bulk, endpoints, job_steps)
    ended_ns = int(job_steps["end_ns"].max())  # type: ignore[arg-type]
    begun = placed.filter(pl.col("step").is_null())
    steps = _timed(placed, job_steps)
    pairs = _taking_part(steps)
    # Flows of no step that began before the last whole one ended are leftovers of it.
    midway = bool((begun["flow_start_ns"] > ended_ns).any()) and _is_part(begun, steps, pairs, settings)
    period_ns = int(job_steps["end_ns"].diff().median())  # type: ignore[arg-type]
    due = _due(begun, steps, silent_ns - ended_ns, settings).join(pairs.select(PAIR), on=PAIR).sort(PAIR)
    midway &= not _is_last_answer(due, begun, steps, pairs, settings)
    midway = midway and not (_is_whole(begun, steps, settings) or _are_micro_batches(steps, pairs))
    midway = midway and _kept(period_ns, bulk, moment, settings)
    due = due if midway else due.clear()
    even = _is_even(due, pairs, settings) or _at_pause(division.numbered, whole, settings)
    last = begun.group_by(PAIR).agg(last_ns=pl.col("flow_end_ns").max())
    return CutOff(midway, ended_ns, silent_ns, period_ns, even, pairs.join(last, on=PAIR, how="left").sort(PAIR), due)


def _whole_steps(endpoints: pl.DataFrame, settings: Settings) -> pl.DataFrame | None:
    """Return the steps up to the last whole one; None if there are too few to tell.

    The last step is whole if it has the bytes of a typical one, or of the least of all others (records are lost), and
    no more NICs are without their part in it than in the worst of these.
    """
    typical = pl.col("bytes").median().over("addr")
    nics = endpoints["addr"].n_unique()
    steps = (
        endpoints.with_columns(short=pl.col("bytes") < PAUSE * typical)
        .group_by("step")
        .agg(pl.col("bytes").sum(), pl.col("end_ns").max(), missing=nics - pl.len() + pl.col("short").sum())
        .sort("step")
    )
    others, last = steps[1:-1], steps[-1:]
    if others.is_empty() or (steps.height < LEAST_STEPS and np.ptp(steps["end_ns"].to_numpy()) < LEAST_STEPS_NS):
        return None
    usual, least = float(others["bytes"].median()), float(others["bytes"].min())  # type: ignore[arg-type]
    complete = last["bytes"].item() >= min(settings.rhythm.least_whole * usual, least)
    complete &= last["missing"].item() <= others["missing"].max()
    return steps.select("step") if complete else steps[:-1].select("step")


def _kept(period_ns: int, bulk: pl.DataFrame, moment: Window, settings: Settings) -> bool:
    """Say whether the job had about the same period until a window before it fell silent, if it had one.

    A pipeline's messages alone show its steps badly: from one moment to the next they seem to be its micro-batches, or
    the coming again of some size. What is midway in such a step says nothing.
    """
    until_ns = moment.start_ns
    earlier = Window(until_ns - moment.length_ns, moment.length_ns)
    division = divide(bulk.filter(pl.col("flow_start_ns") < until_ns), earlier, settings)
    if division is None or division.job_steps.height < 3:
        return True
    before_ns = float(division.job_steps["end_ns"].sort().diff().median())  # type: ignore[arg-type]
    return max(period_ns, before_ns) <= SAME_RHYTHM * min(period_ns, before_ns)


def _is_whole(begun: pl.DataFrame, steps: pl.DataFrame, settings: Settings) -> bool:
    """Say whether each NIC has sent about what it sends in a step, or in the least of those before: that was the last
    one, though not all of its bursts were cut like those of others."""
    sent = steps.group_by("src_addr", "step").agg(pl.col("bytes").sum()).group_by("src_addr")
    usual = sent.agg(usual=pl.col("bytes").median(), least=pl.col("bytes").min())
    enough = pl.min_horizontal(settings.rhythm.least_whole * pl.col("usual"), "least")
    last = usual.join(begun.group_by("src_addr").agg(pl.col("bytes").sum()), on="src_addr", how="left")
    return bool(last.select((pl.col("bytes").fill_null(0) >= enough).all()).item())


def _are_micro_batches(steps: pl.DataFrame, pairs: pl.DataFrame) -> bool:
    """Say whether lines of three NICs or more are all there is, and a step is one message from each to the next.

    A step of so many stages has more micro-batches than one: these were taken for steps, and what a pipeline has under
    way when the last of them ends says nothing.
    """
    ends = pairs.join(connected_nics(pairs, pairs), left_on="src_addr", right_on="addr")
    shape = ends.group_by("cluster").agg(nics=pl.col("src_addr").n_unique(), hops=pl.len())
    lines = shape.select(((pl.col("nics") > 2) & (pl.col("hops") == 2 * (pl.col("nics") - 1))).all()).item()
    if not lines or pairs.join(opposite(pairs), on=PAIR, how="anti").height:
        return False
    until = end_of_earlier("flow_end_ns").over("step", *PAIR)
    apart = (pl.col("flow_start_ns") > until).fill_null(value=True)
    messages = steps.with_columns(apart=apart).group_by("step", *PAIR).agg(pl.col("apart").sum())
    return bool(messages["apart"].median() == 1)


def _timed(placed: pl.DataFrame, job_steps: pl.DataFrame) -> pl.DataFrame:
    """Return the flows of the last whole steps, with `since_ns`: from the end of the job's step before."""
    began = job_steps.select("step", began_ns=pl.col("end_ns").shift(), left=pl.int_range(pl.len(), 0, -1))
    return (
        placed.join(began.filter(pl.col("left") <= TEMPLATES, pl.col("began_ns").is_not_null()), on="step")
        .with_columns(since_ns=pl.col("flow_start_ns") - pl.col("began_ns"))
        .sort("step", "flow_start_ns", "flow_end_ns", *PAIR)
    )


def _taking_part(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs of at least half of the steps, with what they `usual`ly send in one."""
    sent = steps.group_by(*PAIR, "step").agg(pl.col("bytes").sum())
    often = 2 * pl.len() >= steps["step"].n_unique()
    return sent.group_by(PAIR).agg(usual=pl.col("bytes").median(), often=often).filter("often").drop("often")


def _is_part(begun: pl.DataFrame, steps: pl.DataFrame, taking_part: pl.DataFrame, settings: Settings) -> bool:
    """Say whether what was sent after the last step began another: it is not what follows each step, and no pair sent
    more than it does in a step (gathering a whole model, evaluating it)."""
    if _follows(begun, steps, settings):
        return False
    pairs = begun.group_by(PAIR).agg(pl.col("bytes").sum()).join(taking_part, on=PAIR, how="left")
    room = (1 + settings.rhythm.byte_tolerance) * pl.col("usual").fill_null(0)
    beyond = pairs.select((pl.col("bytes") - room).clip(lower_bound=0).sum()).item()
    return bool(beyond <= settings.rhythm.byte_tolerance * int(begun["bytes"].sum()))


def _follows(begun: pl.DataFrame, steps: pl.DataFrame, settings: Settings) -> bool:
    """Say whether each NIC sent what it does in one of the steps before the job pauses, give or take what steps that
    are most alike differ by.

    Where two silences are about as long, some steps seem to pause at one and some at the other: each counts by itself.
    """
    until = pl.max_horizontal(end_of_earlier("flow_end_ns").over("step"), "began_ns")
    gaps = steps.with_columns(gap=pl.col("flow_start_ns") - until)
    longest = gaps.group_by("step").agg(pl.col("gap").max())["gap"].median()
    paused = (pl.col("gap") >= PAUSE * pl.lit(longest)).cast(pl.Int64).cum_sum().over("step") > 0
    after = gaps.with_columns(bytes=pl.when(paused).then(0).otherwise("bytes"))
    sent = pl.concat([after.select("step", "src_addr", "bytes"), begun.select("step", "src_addr", "bytes")])
    nics = sent.pivot(on="step", index="src_addr", values="bytes", aggregate_function="sum").fill_null(0)
    last = nics["null"].to_numpy().astype(np.float64)
    each = nics.drop("src_addr", "null").to_numpy().astype(np.float64).T
    if len(each) < 2:
        return False
    between = np.abs(each[:, np.newaxis] - each).sum(axis=2)
    np.fill_diagonal(between, np.inf)
    alike = TWINS * float(np.median(between.min(axis=0)))
    total = each.sum(axis=1)
    near = np.abs(each - last).sum(axis=1) <= np.maximum(alike, settings.rhythm.same_size * total)
    return bool((near & (total > 0)).any())


def _is_last_answer(
    due: pl.DataFrame, begun: pl.DataFrame, steps: pl.DataFrame, pairs: pl.DataFrame, settings: Settings
) -> bool:
    """Say whether half of the pairs have sent nothing, to those who have answered all that they were sent.

    So a pipeline ends whose micro-batches were taken for steps, or whose steps begin amid them: nothing answers its
    last gradients. They are whole, or, where samples and so messages differ in size, as large as what they answer.
    Of some the record may be lost.
    """
    sent = pairs.join(due.select(*PAIR, "sent"), on=PAIR, how="left").with_columns(
        pl.col("sent").fill_null(pl.col("usual"))
    )
    whole = sent.filter(pl.col("sent") >= settings.rhythm.least_whole * pl.col("usual")).select(PAIR)
    answered = pl.concat([whole, _answers(begun, steps, settings)]).unique().with_columns(answered=True)
    silent = opposite(sent.filter(pl.col("sent") == 0)).with_columns(asked=True)
    both = sent.join(silent, on=PAIR, how="left").join(answered, on=PAIR, how="left")
    last = both.filter(pl.col("asked") & pl.col("answered")).height
    lost = both.filter(pl.col("asked") & (pl.col("sent") == 0)).height // 2
    return 0 < 2 * (last + lost) == sent.height and lost <= LOST * (last + lost)


def _answers(begun: pl.DataFrame, steps: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return the pairs that have sent, since the last step, as much as they were sent last, and not what they were sent
    before that: an activation and its gradient are of one size."""
    answers = begun.group_by(PAIR).agg(sent=pl.col("bytes").sum(), records=pl.len())
    left = pl.int_range(pl.len()).reverse().over(PAIR)
    asked = opposite(steps.with_columns(left=left), "bytes", "left")
    before = pl.col("back_left") // pl.col("records")
    sizes = (
        answers.join(asked, on=PAIR)
        .group_by(*PAIR, "sent")
        .agg(last=pl.col("back_bytes").filter(before == 0).sum(), other=pl.col("back_bytes").filter(before == 1).sum())
    )
    near = settings.rhythm.same_size * pl.col("sent")
    last, other = ((pl.col(name) - pl.col("sent")).abs() <= near for name in ("last", "other"))
    return sizes.filter(last, ~other).select(PAIR)


def _is_even(due: pl.DataFrame, pairs: pl.DataFrame, settings: Settings) -> bool:
    share = due.join(pairs, on=PAIR).select(pl.col("sent") / pl.col("usual")).to_series()
    return bool(share.is_empty() or np.ptp(share.to_numpy()) <= settings.rhythm.same_size)


def _at_pause(numbered: pl.DataFrame, whole: pl.DataFrame, settings: Settings) -> bool:
    """Say whether the last step has as many bytes as most others where they pause for about the longest."""
    last = numbered.join(whole, on="step", how="anti")["bytes"].sum()
    steps = numbered.join(whole, on="step", how="semi").sort("step", "flow_start_ns", "flow_end_ns", *PAIR)
    gap = pl.col("flow_start_ns") - end_of_earlier("flow_end_ns").over("step")
    before = (pl.col("bytes").cum_sum() - pl.col("bytes")).over("step")
    longest = pl.col("gap").max().over("step")
    paused = steps.select("step", gap=gap, before=before).filter(pl.col("gap") >= PAUSE * longest)
    there = paused.filter((pl.col("before") - last).abs() <= settings.rhythm.same_size * pl.col("before"))
    return 2 * there["step"].n_unique() >= whole.height


def _due(begun: pl.DataFrame, steps: pl.DataFrame, silent_since_ns: int, settings: Settings) -> pl.DataFrame:
    sent = begun.group_by(PAIR).agg(sent=pl.col("bytes").sum(), last_ns=pl.col("flow_end_ns").max())
    key = [*PAIR, "step"]
    before = pl.col("bytes").cum_sum().over(key) - pl.col("bytes")
    total = pl.col("bytes").sum().over(key)
    inside = ((pl.col("sent") - pl.col("before")) / pl.col("bytes")).clip(0, 1)
    moments = (
        steps.join(sent, on=PAIR, how="left")
        .with_columns(pl.col("sent").fill_null(0), before=before, total=total)
        .filter(
            pl.col("before") + pl.col("bytes") > pl.col("sent") + settings.rhythm.same_size * pl.col("total"),
        )
        .with_columns(due=pl.col("since_ns") + inside * (pl.col("flow_end_ns") - pl.col("flow_start_ns")))
        .group_by(key)
        .agg(pl.col("due").min(), pl.col("sent", "last_ns").first())
    )
    return moments.group_by(PAIR).agg(
        late_ns=silent_since_ns - pl.col("due").median(),
        noise_ns=sigma(pl.col("due")),
        sent=pl.col("sent").first(),
        last_ns=pl.col("last_ns").first(),
    )
