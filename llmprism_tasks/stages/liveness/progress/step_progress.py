"""Step progress: whether a job fell silent after a whole step or in the middle of one, and which pair was due first.

A job that ends normally sends nothing after its last step, or only what follows each of its steps (gathering
parameters). Anything else is the beginning of an unfinished step. Earlier steps show when each pair is due to send its
next byte. The pair that is overdue for longest stopped first, and the others wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.liveness.foreign import CHATTER_BYTES, MOST_FOREIGN_PAIRS
from llmprism_tasks.stages.liveness.progress.next_send import moments_of_pairs, next_sends, share_of_lost
from llmprism_tasks.stages.liveness.progress.turn import in_turn
from llmprism_tasks.stages.liveness.progress.usual_pause import is_at_usual_pause, pauses_alike, usual_pauses
from llmprism_tasks.stages.liveness.progress.whole_steps import (
    DISSIMILARITY_RATIO,
    division_of_whole_steps,
    ended_together,
    is_as_even,
    unevenness,
    whole_steps,
)
from llmprism_tasks.stages.step_division import completion
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.clusters import connected_nics
from llmprism_tasks.stages.traffic.opposite import opposite

TEMPLATE_STEPS = 8
"""Steps that show when each pair is due; over more steps a job's pace changes."""
LOST_RECORDS = 0.25
"""Share of a pipeline's last messages whose records a poor collector may have lost: one of the four that a stage of
four tensor-parallel ranks sends. Ranks in lock step have either all sent, or none has."""


@dataclass(frozen=True)
class StepProgress:
    """How far a job was in its step when it fell silent.

    Attributes
    ----------
    midway : whether the job was in the middle of a step; if not, it ended normally and no pair is due
    ended_ns : end of the last whole step
    silent_ns : end of the last flow that is no chatter, of pairs that take part in the steps
    period_ns : length of a typical step
    even : whether all pairs with more to send are equally far in the step, or at the point where other steps pause
    may_end : whether it was at a point where other steps pause, or not `midway`. A job that ends normally is at the
        former if its parameters are gathered in the next step
    pairs : pairs that take part in the steps: `src_addr`, `dst_addr`, `usual` (bytes per step), `last_ns` (end of its
        last flow in the unfinished step; NULL without one)
    next_sends : when each NIC was due to send next, as `next_send.next_sends` returns; empty if not `midway`
    lost : share of a pair's steps of which every record is lost
    lengths_ns : lengths of the whole steps
    places, paused : at how many pauses of a step a job may end, and their share of its time, as `pauses_alike` returns
        them
    """

    midway: bool
    ended_ns: int
    silent_ns: int
    period_ns: int
    even: bool
    may_end: bool
    pairs: pl.DataFrame
    next_sends: pl.DataFrame
    lost: float = 0.0
    lengths_ns: tuple[int, ...] = ()
    places: float = 1.0
    paused: float = 1.0


def step_progress_at(
    bulk: pl.DataFrame, silent_ns: int, settings: Settings, foreign: pl.DataFrame | None = None
) -> StepProgress | None:
    """Return how far a job was in its step when it fell silent; None if the job never had regular steps.

    Parameters
    ----------
    bulk : the job's bulk flows that began before the silence, with `job_id`; addresses as text
    silent_ns : end of the last of these flows
    foreign : pairs that went on while the job was silent (`src_addr`, `dst_addr`): they are no part of a step, unless
        they take part in the others
    """
    found = division_of_whole_steps(bulk, silent_ns, settings)
    if found is None:
        return None
    division, has_kept_period = found
    whole = whole_steps(division.endpoints, bulk, settings)
    if whole is None:
        return None
    endpoints = division.endpoints.join(whole, on="step", how="semi")
    job_steps = division.job_steps.join(whole, on="step", how="semi").sort("step")
    endpoints, job_steps = ended_together(endpoints, job_steps, settings)
    placed = completion.step_of_flows(bulk, endpoints, job_steps)
    ended_ns = int(job_steps["end_ns"].max())  # type: ignore[arg-type]
    begun = placed.filter(pl.col("step").is_null())
    steps = _flows_of_last_steps(placed, job_steps)
    aside = pairs_outside_steps(steps, _participating_pairs(steps), division.periodic)
    begun, steps = (flows.filter(~pl.col("pair").is_in(aside.implode())) for flows in (begun, steps))
    pairs = _participating_pairs(steps)
    if foreign is not None:
        begun = begun.join(foreign.join(pairs, on=PAIR, how="anti"), on=PAIR, how="anti")
    # Flows outside all steps that began before the last whole step ended are leftovers of it.
    ours = in_turn(begun, steps, settings.rhythm.same_size)
    midway = bool((ours["flow_start_ns"] > ended_ns).any()) and _has_begun_step(begun, steps, pairs, settings)
    lengths_ns = job_steps["end_ns"].diff().drop_nulls()
    period_ns = int(lengths_ns.median())  # type: ignore[arg-type]
    moments = moments_of_pairs(begun, steps, pairs, settings.rhythm.same_size)
    due = moments.drop_nulls("more_ns").group_by(PAIR).agg(pl.col("sent").first()).sort(PAIR)
    midway &= not _is_last_answer(due, begun, steps, pairs, settings)
    midway = midway and not (_is_whole(begun, steps, settings) or _are_micro_batches(steps, pairs))
    midway = midway and has_kept_period
    pauses = usual_pauses(steps)
    may_end = not midway or is_at_usual_pause(begun, pauses, steps["step"].n_unique(), settings.rhythm.same_size)
    even = may_end or _is_even(due, pairs, settings)
    last = begun.group_by(PAIR).agg(last_ns=pl.col("flow_end_ns").max())
    pairs = pairs.join(last, on=PAIR, how="left").sort(PAIR)
    sends = next_sends(moments if midway else moments.clear(), begun, steps, ended_ns, settings.rhythm.same_size)
    lost = share_of_lost(moments)
    silent_ns = _end_of_training(begun, pairs, silent_ns)
    rest = lost, tuple(lengths_ns), *pauses_alike(pauses)
    return StepProgress(midway, ended_ns, silent_ns, period_ns, even, may_end, pairs, sends, *rest)


def _is_whole(begun: pl.DataFrame, steps: pl.DataFrame, settings: Settings) -> bool:
    """Return whether each NIC has sent about as much as in a usual step, or in its smallest step before.

    Then the last step was whole, although not all of its bursts were cut as in other steps.
    """
    usual = pl.col("bytes").median().over("src_addr")
    sent = steps.group_by("src_addr", "step").agg(pl.col("bytes").sum()).with_columns(usual=usual)
    parts = sent.with_columns(part=pl.col("bytes") / pl.col("usual"))
    nics = parts.group_by("src_addr").agg(pl.col("usual").first(), least=pl.col("part").min())
    last = nics.join(begun.group_by("src_addr").agg(pl.col("bytes").sum()), on="src_addr", how="left")
    part = pl.col("bytes").fill_null(0) / pl.col("usual")
    enough = part >= pl.min_horizontal(settings.rhythm.least_whole, "least")
    whole, uneven = last.select(enough.all(), uneven=unevenness(part)).row(0)
    others = parts.group_by("step").agg(unevenness(pl.col("part")))["part"]
    return bool(whole and is_as_even(uneven, others, settings))


def _are_micro_batches(steps: pl.DataFrame, pairs: pl.DataFrame) -> bool:
    """Return whether the job consists of lines of three or more NICs with one message per step from each to the next.

    A pipeline with that many stages has several micro-batches per step, so micro-batches were mistaken for steps, and
    messages in flight at the end of the last of them mean nothing.
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


def _flows_of_last_steps(placed: pl.DataFrame, job_steps: pl.DataFrame) -> pl.DataFrame:
    """Return the flows of the last whole steps, with `since_ns`: time since the end of the job's previous step."""
    began = job_steps.select("step", began_ns=pl.col("end_ns").shift(), left=pl.int_range(pl.len(), 0, -1))
    return (
        placed.join(began.filter(pl.col("left") <= TEMPLATE_STEPS, pl.col("began_ns").is_not_null()), on="step")
        .with_columns(since_ns=pl.col("flow_start_ns") - pl.col("began_ns"))
        .sort("step", "flow_start_ns", "flow_end_ns", *PAIR)
    )


def _end_of_training(begun: pl.DataFrame, pairs: pl.DataFrame, silent_ns: int) -> int:
    """Return when a job that has begun a step fell silent: a copy of files or a log that comes later is none of it."""
    own = begun.join(pairs, on=PAIR, how="semi").filter(pl.col("bytes") >= CHATTER_BYTES)
    return int(own["flow_end_ns"].max() or silent_ns)  # type: ignore[arg-type]


def _participating_pairs(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs that send in at least half of the steps, with their usual bytes per step (`usual`)."""
    sent = steps.group_by(*PAIR, "step").agg(pl.col("bytes").sum())
    often = 2 * pl.len() >= steps["step"].n_unique()
    return sent.group_by(PAIR).agg(usual=pl.col("bytes").median(), often=often).filter("often").drop("often")


def pairs_outside_steps(steps: pl.DataFrame, pairs: pl.DataFrame, periodic: pl.Series) -> pl.Series:
    """Return the numbers of pairs that move data beside the steps, as a copy of files does: a few that show no period,
    and that nothing comes back to.

    They are due at no time. Where many show none, as those of experts may, they are the job's all the same; and so are
    the two ways of a pipeline's link whose samples differ in length.

    Parameters
    ----------
    steps : `pair`, `src_addr`, `dst_addr` of the flows in steps
    pairs : `src_addr`, `dst_addr` of those that take part in most steps
    periodic : numbers of the pairs that show a period
    """
    taking_part = steps.join(pairs, on=PAIR, how="semi").select("pair", *PAIR).unique()
    answered = taking_part.join(taking_part, left_on=PAIR, right_on=PAIR[::-1], how="semi")
    aside = taking_part.join(answered, on="pair", how="anti")["pair"]
    aside = aside.filter(~aside.is_in(periodic.implode()))
    return aside if aside.len() <= MOST_FOREIGN_PAIRS * taking_part.height else aside.clear()


def _has_begun_step(begun: pl.DataFrame, steps: pl.DataFrame, taking_part: pl.DataFrame, settings: Settings) -> bool:
    """Return whether the flows after the last step began another one.

    They did not if they are what follows each step, or if a pair sent more than in a step (gathering or evaluating a
    whole model).
    """
    if _is_sent_after_each_step(begun, steps, settings):
        return False
    pairs = begun.group_by(PAIR).agg(pl.col("bytes").sum()).join(taking_part, on=PAIR, how="left")
    room = (1 + settings.rhythm.byte_tolerance) * pl.col("usual").fill_null(0)
    beyond = pairs.select((pl.col("bytes") - room).clip(lower_bound=0).sum()).item()
    return bool(beyond <= settings.rhythm.byte_tolerance * int(begun["bytes"].sum()))


def _is_sent_after_each_step(begun: pl.DataFrame, steps: pl.DataFrame, settings: Settings) -> bool:
    """Return whether each NIC sent as much as it sends in some earlier step before the job pauses.

    The amounts may differ as much as those of the most similar earlier steps. If two pauses are about equally long,
    steps seem to pause at one or the other, so each earlier step is compared by itself.
    """
    until = pl.max_horizontal(end_of_earlier("flow_end_ns").over("step"), "began_ns")
    gaps = steps.with_columns(gap=pl.col("flow_start_ns") - until)
    longest = gaps.group_by("step").agg(pl.col("gap").max())["gap"].median()
    paused = (pl.col("gap") >= MAJORITY * pl.lit(longest)).cast(pl.Int64).cum_sum().over("step") > 0
    after = gaps.with_columns(bytes=pl.when(paused).then(0).otherwise("bytes"))
    sent = pl.concat([after.select("step", "src_addr", "bytes"), begun.select("step", "src_addr", "bytes")])
    nics = sent.pivot(on="step", index="src_addr", values="bytes", aggregate_function="sum").fill_null(0)
    last = nics["null"].to_numpy().astype(np.float64)
    each = nics.drop("src_addr", "null").to_numpy().astype(np.float64).T
    if len(each) < 2:
        return False
    between = np.abs(each[:, np.newaxis] - each).sum(axis=2)
    np.fill_diagonal(between, np.inf)
    alike = DISSIMILARITY_RATIO * float(np.median(between.min(axis=0)))
    total = each.sum(axis=1)
    near = np.abs(each - last).sum(axis=1) <= np.maximum(alike, settings.rhythm.same_size * total)
    return bool((near & (total > 0)).any())


def _is_last_answer(
    due: pl.DataFrame, begun: pl.DataFrame, steps: pl.DataFrame, pairs: pl.DataFrame, settings: Settings
) -> bool:
    """Return whether half of the pairs have sent nothing because their turn was over: the other half sent last answers.

    A pipeline ends so if its micro-batches were mistaken for steps, or if its steps begin amid them: nothing answers
    the last gradients. An answer counts if it is whole or, where the sizes of samples and messages vary, as large as
    the message that it answers. The records of some answers may be lost.
    """
    sent = pairs.join(due.select(*PAIR, "sent"), on=PAIR, how="left").with_columns(
        pl.col("sent").fill_null(pl.col("usual"))
    )
    whole = sent.filter(pl.col("sent") >= settings.rhythm.least_whole * pl.col("usual")).select(PAIR)
    answered = pl.concat([whole, _answering_pairs(begun, steps, settings)]).unique().with_columns(answered=True)
    silent = opposite(sent.filter(pl.col("sent") == 0)).with_columns(asked=True)
    both = sent.join(silent, on=PAIR, how="left").join(answered, on=PAIR, how="left")
    last = both.filter(pl.col("asked") & pl.col("answered")).height
    lost = both.filter(pl.col("asked") & (pl.col("sent") == 0)).height // 2
    return 0 < 2 * (last + lost) == sent.height and lost <= LOST_RECORDS * (last + lost)


def _answering_pairs(begun: pl.DataFrame, steps: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return the pairs that have sent as much as they last received, and not as much as they received before that.

    An activation and its gradient have one size.
    """
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
