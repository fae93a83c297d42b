"""One slow step: a single step that lasts far longer than its job's noise explains, told in its own window.

LLMPrism (arXiv 2505.00342), stage 5, compares steps with other steps of their job (cross-step) by k sigma. Here one
number decides: how many such rows a healthy job may have per hour. The job's own distribution of step lengths turns it
into the shortest length that is told. Where the time went tells what it was: while all were silent and wrote to
storage, a checkpoint (`checkpoint_stall`); in the transfers of one NIC or link, a flap (`link_flap`); in silences that
come several times a window, without a pattern, `stalls`; in waiting for one host, `stalls` or `slow_compute` of that
host; else nobody is named (`cross_step`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import EVEN_ODDS, MAJORITY, Flags, Floats
from llmprism_tasks.settings import DiagnosisSettings, Settings
from llmprism_tasks.stages.diagnosis.evidence import (
    FINDING_SCHEMA,
    MOST_SUSPECTS,
    Evidence,
    as_likely,
    candidate_columns,
)
from llmprism_tasks.stages.diagnosis.network import devices
from llmprism_tasks.stages.diagnosis.network.devices import NAMED_ALONE
from llmprism_tasks.stages.diagnosis.network.path_pace import KINDS, with_units
from llmprism_tasks.stages.diagnosis.pauses import habit
from llmprism_tasks.stages.diagnosis.pauses.held_transfers import held_nics
from llmprism_tasks.stages.diagnosis.pauses.one_host import OneHost, OneNic, find_one_host, find_one_nic
from llmprism_tasks.stages.diagnosis.pauses.standstill import LIKELIER, stopped_in_step
from llmprism_tasks.stages.diagnosis.step_times.course import Course, Steps, course_of, step_of_times, steps_of
from llmprism_tasks.stages.diagnosis.step_times.duration_model import WORTH_A_ROW
from llmprism_tasks.stages.diagnosis.step_times.first_silence import first_silences
from llmprism_tasks.stages.diagnosis.step_times.lasting_delay import is_lasting
from llmprism_tasks.stages.liveness.quiet_times import are_of_collector

Row = dict[str, Any]

USUAL_SHARE = 0.2
"""Share of a job's steps from which on slow ones are no single steps: they are how the job works."""

BYTES_TOLERANCE = 0.25
"""Ratio by which the bytes of a step may differ from the usual. Two steps taken for one have twice as many, and a step
of which the collector lost a part has fewer; samples of uneven length change them by less."""

KINDS_OF_ALL_STEPS = (
    "hang",
    "stopped",
    "ended",
    "cross_step",
    "straggler",
    "link_flap",
    "stalls",
    "checkpoint_stall",
    "uneven_micro_batches",
)
"""Kinds that tell of all slow steps between their start and end, whatever their severity on average."""

KINDS_OF_ONE_DEVICE = ("slow_nic", "degraded_link", "congestion", "link_flap")
"""Kinds that name one NIC or link for sure."""


def find(found: pl.DataFrame, evidence: Evidence, every: Settings) -> pl.DataFrame:
    """Tell of single slow steps of the window that no other finding explains.

    `score` is how many deviations of the job's noise the longest of them lies above the usual step. `severity` is the
    ratio by which they lengthen the window's steps.

    Parameters
    ----------
    found : rows of `evidence.FINDING_SCHEMA` from all other detectors
    """
    rows: list[Row] = []
    settings = every.diagnosis
    for (job_id,), history in evidence.history.group_by("job_id", maintain_order=True):
        whole = steps_of(str(job_id), history)
        if whole is None:
            continue
        steps, seen = _since_warm_up(whole, evidence, every)
        of_members = seen.steps.filter(pl.col("job_id") == job_id)
        slow = _is_single_slow_step(steps, settings)
        lasting = is_lasting(steps.numbers, steps.excess, steps.model.usual_ns, of_members)
        slow &= lasting | _is_last_and_held(steps, slow & ~lasting, seen)
        if slow.any():
            slow &= ~_is_explained(steps, found)
        if slow.any():
            rows.extend(_slow_step_rows(steps, slow, seen, every))
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _since_warm_up(steps: Steps, evidence: Evidence, every: Settings) -> tuple[Steps, Evidence]:
    """Return a job's steps from its first usual one on, and the evidence without the pauses before that one.

    A run warms up: it compiles, and connects its ranks as they first exchange data. So its first steps are neither
    slow nor a habit. Where the look-back begins later than the run, its first steps were not seen.
    """
    of_job = pl.col("job_id") == steps.job_id
    first = int((steps.lengths <= steps.model.least_ns(every.diagnosis)).argmax())
    if first == 0:
        return steps, evidence
    began_ns = evidence.flows.filter(of_job).select(pl.col("flow_start_ns").min()).item()
    seen_since_ns = evidence.window.lookback(every.window.lookback_windows).start_ns + steps.model.usual_ns
    if began_ns is None or began_ns < seen_since_ns:
        return steps, evidence
    usual = steps.since(first)
    warming = of_job & pl.col("since_ns").is_between(began_ns, usual.starts[0] - 1)
    return usual, dataclasses.replace(evidence, pauses=evidence.pauses.filter(~warming))


def _is_single_slow_step(steps: Steps, settings: DiagnosisSettings) -> Flags:
    """Return which steps of the window are slow, and are no run of slow steps."""
    slow = steps.lengths > steps.model.least_ns(settings)
    if not (slow & steps.current).any() or slow.mean() > USUAL_SHARE:
        return np.zeros_like(slow)
    return slow & steps.current & ~_is_in_run(steps.excess, slow, settings.least_steps)


def _is_last_and_held(steps: Steps, slow: Flags, evidence: Evidence) -> Flags:
    """Return whether the last step is slow for transfers that were held in it.

    If a step took long, its members are late from then on; if it was cut too late, they are not. Where one stage of a
    pipeline alone was held, the others show that in the next step.
    """
    last: Flags = slow & (np.arange(slow.size) == slow.size - 1)
    held = last.any() and _held_nics(steps, last, _with_slow_steps_alone(steps, last, evidence))
    return last if held else np.zeros_like(last)


def _is_in_run(excess: Floats, slow: Flags, least: int) -> Flags:
    """Return which slow steps follow each other in runs that are long enough for a fault that lasts.

    A run is one of steps that lost as much, half of it at least: a slight loss before it makes a pause no run.
    """
    in_run = np.zeros_like(slow)
    for at in np.flatnonzero(slow):
        lost = slow & (excess >= MAJORITY * excess[at])
        before, after = (np.append(side, False).argmin() for side in (lost[at::-1], lost[at:]))
        in_run[at] = before + after - 1 >= least
    return in_run


def _are_at_same_place(steps: Steps, silent: Flags, quick: Flags, evidence: Evidence) -> Flags:
    """Return whether the silences of two steps begin at the same place in the step, as `habit.are_at_same_place`."""
    training = evidence.flows.filter(pl.col("job_id") == steps.job_id, pl.col("kind") != "other")
    since = first_silences(steps, silent, quick, training)
    return habit.are_at_same_place(steps, since, silent & (since < steps.ends))


def _is_unseen(steps: Steps, still: Flags, course: Course, evidence: Evidence) -> Flags:
    """Return in which of the steps that stood still the collector stopped, and not the job.

    Who goes on training unseen is as far afterwards as if it had been seen: some whole steps were not.

    Parameters
    ----------
    still : which steps lost most of their time to a silence
    """
    more = steps.excess / steps.model.usual_ns
    unseen = still & (more > MAJORITY) & (np.abs(more - np.round(more)) <= WORTH_A_ROW)
    if unseen.any():
        since, until = course.since[unseen], course.since[unseen] + course.longest[unseen]
        others = evidence.begun_by_others(steps.job_id)
        unseen[unseen] = are_of_collector(others, since, until, steps.model.usual_ns)
    return unseen


def _is_explained(steps: Steps, found: pl.DataFrame) -> Flags:
    """Return which steps another finding about the job tells of: at their time, and as large as their excess."""
    explained = np.zeros_like(steps.current)
    for start_ns, end_ns, kind, severity in (
        found.filter(pl.col("job_id") == steps.job_id).select("start_ns", "end_ns", "kind", "severity").iter_rows()
    ):
        enough = (kind in KINDS_OF_ALL_STEPS) | (severity * steps.model.usual_ns >= MAJORITY * steps.excess)
        explained |= (steps.starts < end_ns) & (steps.ends > start_ns) & enough
    return explained


def _slow_step_rows(steps: Steps, slow: Flags, evidence: Evidence, every: Settings) -> list[Row]:
    """Return a row for each kind of slow step and its subject."""
    settings = every.diagnosis
    quick = ~(steps.excess > WORTH_A_ROW * steps.model.usual_ns)
    course = course_of(steps, quick, evidence)
    usual_silent, usual_written = (float(np.median(values[quick])) for values in (course.silent, course.written))
    # No trouble makes half of the members send more: they work, as in an evaluation, whose forward passes go through.
    as_usual = (np.abs(course.moved - 1) <= BYTES_TOLERANCE) & (course.busier < MAJORITY)
    slow &= as_usual
    silent = course.silent - usual_silent >= MAJORITY * steps.excess
    more_written = np.maximum(course.written - usual_written, 0)
    saving = (more_written >= habit.CHECKPOINT_BYTES) & ~quick
    # Who trains on while it writes does not wait for that.
    saving &= more_written[saving].sum() >= MAJORITY * more_written.sum()
    paused = (steps.lengths > steps.model.least_ns(settings)) & as_usual & silent & ~saving
    asked, rows = bool((slow & paused).any()), list[Row]()
    nic = find_one_nic(steps, paused, evidence) if asked else None
    if nic is not None and nic.erratic and (of_nic := slow & nic.steps).any():
        rows.append(_one_nic_row(steps, of_nic, course, nic))
        slow &= ~of_nic
    # A host that stops holds up all its rails alike.
    one = find_one_host(steps, paused, evidence) if asked and nic is None else None
    if one is not None and (of_one := slow & one.steps).any():
        rows.append(_one_host_row(steps, of_one, slow, course, one))
        slow &= ~of_one
    together = _are_at_same_place(steps, silent & ~quick, quick, evidence)
    slow &= ~habit.is_on_schedule(steps, steps.lengths > steps.model.least_ns(settings), together)
    slow &= ~_is_unseen(steps, slow & silent, course, evidence)
    saves = slow & silent & saving
    rest = slow & ~saves
    habitual = _is_habitual(steps, slow, course, quick, together, evidence)
    # What is usual nobody knows before the second checkpoint: it may cost as much of a window as regular ones.
    first = ~habitual & (steps.excess >= settings.least_checkpoint * evidence.window.length_ns)
    saves &= habit.is_slow_to_save(steps.excess, course.written, saving, first)
    if saves.any():
        wrote = f"while its members wrote {course.written[saves].sum() / 1e6:,.0f} MB to storage"
        known = (np.cumsum(saving) > 1)[saves].any()
        wrote += "" if known else habit.FIRST_SAVE
        rows.append(_row("checkpoint_stall", steps, saves, course, wrote) | {"confidence": 1.0 if known else EVEN_ODDS})
    moving = slow & ~silent
    if moving.any() and (flap := _flapping_device(steps, moving, evidence, settings)) is not None:
        rows.append(_row(flap.pop("kind"), steps, moving, course, flap.pop("how")) | flap)
        rest &= ~moving
    rest &= ~course.throughout
    stalls = rest & silent
    if stalls.sum() >= settings.least_steps:
        how = "while its training stood still, and its members waited for one; the flows do not show which"
        if nic is not None and (stalls & nic.steps).sum() > MAJORITY * stalls.sum():
            rows.append(_one_nic_row(steps, stalls, course, nic))
        else:
            rows.append(_row("stalls", steps, stalls, course, how) | {"confidence": 1.0})
        rest &= ~stalls
    rest &= ~(silent & habitual)
    if rest.any():
        rows.append(_other_row(steps, rest, silent, silent & ~quick, course, evidence, every))
    return rows


def _one_host_row(steps: Steps, mine: Flags, slow: Flags, course: Course, one: OneHost) -> Row:
    how = f"while its training stood still. {one.words}"
    who = {"subject_type": "host", "subject": one.host}
    confidence = float(steps.excess[mine].sum() / steps.excess[slow].sum())
    return _row("stalls", steps, mine, course, how) | who | {"confidence": confidence}


def _one_nic_row(steps: Steps, slow: Flags, course: Course, nic: OneNic) -> Row:
    how = f"while its training stood still. {nic.words}"
    who = {"subject_type": "addr", "subject": nic.addr}
    confidence = LIKELIER * float(steps.excess[slow & nic.steps].sum() / steps.excess[slow].sum())
    return _row("link_flap", steps, slow, course, how) | who | {"confidence": confidence}


def _other_row(
    steps: Steps, rest: Flags, silent: Flags, paused: Flags, course: Course, evidence: Evidence, every: Settings
) -> Row:
    """Return the row of slow steps that nothing else explains, with who stopped first in the longest of them."""
    at = int(np.flatnonzero(rest)[steps.lengths[rest].argmax()])
    how = "while its members sent data"
    if (rest & silent).any():
        whole = course.longest[at] >= MAJORITY * steps.excess[at]
        how = "while its training stood still" if whole else "while its training paused time and again"
    span = (int(steps.starts[at]), int(steps.ends[at]))
    is_over = bool((steps.excess[at + 1 :] < MAJORITY * steps.excess[at]).any())
    usual_ns, count = steps.model.usual_ns, steps.starts.size
    who = stopped_in_step(steps.job_id, span, usual_ns, count, evidence, every, is_over=is_over)
    how += who.pop("how", "; the flows name nobody")
    if "confidence" in who:
        who["confidence"] *= steps.excess[at] / steps.excess[rest].sum()
    # All members stood still alike. Whether that is usual nobody knows before the second pause.
    if not who and silent[at] and not paused[:at].any():
        who, how = {"confidence": EVEN_ODDS}, how + habit.FIRST_PAUSE
    return _row(who.pop("kind", "cross_step"), steps, rest, course, how) | who


def _is_habitual(steps: Steps, slow: Flags, course: Course, quick: Flags, together: Flags, evidence: Evidence) -> Flags:
    """Return in which slow steps the job pauses as it has paused before, at the same place in the step."""
    pauses = habit.pauses_of_steps(steps.job_id, steps.starts, steps.ends, evidence)
    silent = np.maximum(course.longest, course.silent - np.median(course.silent[quick]))
    found = np.zeros_like(quick)
    for step in np.flatnonzero(slow):
        elsewhere = pl.col("step").is_in(np.flatnonzero(~together[step]))
        here = dataclasses.replace(evidence, pauses=pauses.filter(~elsewhere))
        begin_ns, silent_ns = int(steps.starts[step]), float(silent[step])
        found[step] = habit.is_habit(steps.job_id, begin_ns, silent_ns, steps.model.usual_ns, here)
    return found


def _flapping_device(steps: Steps, slow: Flags, evidence: Evidence, settings: DiagnosisSettings) -> Row | None:
    """Return the NIC or link that was slow in the slow steps alone, found as network faults are found in several steps.

    It has flapped if a quick step followed; until then it may go on being slow. Of a path whose devices the data do not
    tell apart, all of these are its candidates.
    If the data show a slow ring, but not which of its NICs is slow, it is the row of a job whose `candidates` are the
    NICs that may be; None if nothing was slow, or too many may be.
    """
    alone = _with_slow_steps_alone(steps, slow, evidence)
    once = dataclasses.replace(settings, least_steps=1)
    # Where NICs are among them, one of these may have lost its link.
    few = (pl.col("candidates").list.len() <= MOST_SUSPECTS) & (pl.col("subject_type") != "addr")
    rows = devices.find(alone, once).filter(pl.col("confidence") >= MAJORITY)
    rows = rows.filter(pl.col("kind").is_in(KINDS_OF_ONE_DEVICE) | ((pl.col("kind") == "slow_network") & few))
    if rows["subject"].n_unique() == 1:
        row = rows.row(0, named=True)
        how = f"while traffic through {row['subject']} took {row['score']:.1f} times the usual time per byte"
        kind = row["kind"] if slow[-1] else "link_flap"
        if row["kind"] == "slow_network":
            kind, how = row["kind"], f"{how}, and the fault may be that of any one of {', '.join(row['candidates'])}"
        told = ("subject_type", "subject", "confidence", "peers", "candidates", "odds")
        return {name: row[name] for name in told} | {"kind": kind, "how": how}
    held = _held_nics(steps, slow, alone)
    if len(held) == 1:
        how = f"while transfers through {held[0]} alone took longer than ever, for most of that time"
        kind = "slow_nic" if slow[-1] else "link_flap"
        return {"subject_type": "addr", "subject": held[0], "confidence": NAMED_ALONE, "kind": kind, "how": how}
    suspects = held or _ring_suspects(alone.once(devices.hops_in_trouble, once))
    if not suspects:
        return None
    slowed = "transfers alone were slow between" if held else "a ring was slow on every hop of"
    how = f"while {slowed} {', '.join(suspects)}, one of which may have lost its link"
    return candidate_columns(as_likely(suspects)) | {"kind": "cross_step", "how": how}


def _with_slow_steps_alone(steps: Steps, slow: Flags, evidence: Evidence) -> Evidence:
    """Return a job's evidence without its other slow steps: those before the window, or slow for another reason, are no
    healthy ones to compare with."""
    of_job = pl.col("job_id") == steps.job_id
    usable = ~(steps.excess > WORTH_A_ROW * steps.model.usual_ns) | slow
    return dataclasses.replace(
        evidence,
        flows=evidence.flows.filter(of_job),
        history=evidence.history.filter(of_job).filter(pl.Series(usable)),
    )


def _held_nics(steps: Steps, slow: Flags, alone: Evidence) -> list[str]:
    """Return the NICs that alone held the transfers of the slow steps."""
    flows = with_units(alone.flows.filter(pl.col("kind").is_in(KINDS)), alone.groups)
    (step, inside), (last, until) = (
        step_of_times(flows[name].to_numpy(), steps) for name in ("flow_start_ns", "flow_end_ns")
    )
    # A ring that is held ends its step late, and most other members have begun the next one by then: that is long.
    held = (inside & slow[step]) | (until & slow[last])
    quick = ~(steps.excess > WORTH_A_ROW * steps.model.usual_ns)
    placed = flows.with_columns(slow=pl.Series(held), quick=pl.Series(inside & quick[step] & ~held))
    return held_nics(placed, float(steps.excess[slow].sum()))


def _ring_suspects(hops: pl.DataFrame) -> list[str]:
    """Return the NICs of slow rings none of whose hops was at its usual pace, sorted."""
    if not hops["slow"].any():
        return []
    rings = hops.filter(pl.col("kind") == "dp").join(hops.filter("slow").select("unit").unique(), on="unit")
    ends = pl.concat([rings.select("slow", addr=end) for end in ("src_addr", "dst_addr")])
    return ends.group_by("addr").agg(pl.col("slow").all()).filter("slow")["addr"].sort().to_list()


def _row(kind: str, steps: Steps, slow: Flags, course: Course, how: str) -> Row:
    excess = steps.excess[slow]
    longest = int(np.flatnonzero(slow)[steps.lengths[slow].argmax()])
    usual_ns = steps.model.usual_ns
    lasted = " and ".join(f"{length / 1e9:.1f} s" for length in steps.lengths[slow])
    word = "One step" if excess.size == 1 else f"{excess.size} single steps"
    at_s = max((course.since[longest] - steps.starts[longest]) / 1e9, 0.0)
    where = f"The longest silence, of {course.longest[longest] / 1e9:.1f} s, began {at_s:.1f} s into the step."
    return {
        "job_id": steps.job_id,
        "kind": kind,
        "subject_type": "job",
        "subject": steps.job_id,
        "start_ns": int(steps.starts[slow].min()),
        "end_ns": int(steps.ends[slow].max()),
        "score": steps.model.deviations(float(steps.lengths[longest])),
        "severity": float(excess.sum()) / (usual_ns * max(int(steps.current.sum()), 1)),
        "explanation": f"{word} took {lasted} instead of {usual_ns / 1e9:.1f} s, {how}. {where}",
        "steps": int(excess.size),
        "lost_s": float(excess.sum()) / 1e9,
    }
