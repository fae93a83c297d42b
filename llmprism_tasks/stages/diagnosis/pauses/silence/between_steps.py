"""Silences between two steps: a job that has ended, or hangs where nobody can see it, or has paused for long.

A silence that no other detector explains is told once, by what it may be. A job that went on has paused; the row is
about the one step that lasted so long. A job that is still silent, or began anew, is `ended`: it ended in order, or it
hangs, or it still pauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import EVEN_ODDS
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence, candidate_columns
from llmprism_tasks.stages.diagnosis.pauses.habit import CHECKPOINT_BYTES, FIRST_SAVE, is_habit, writes_in
from llmprism_tasks.stages.diagnosis.pauses.silence import hang
from llmprism_tasks.stages.diagnosis.pauses.silence.readings import may_have_ended, readings
from llmprism_tasks.stages.diagnosis.step_times import duration_model
from llmprism_tasks.stages.liveness.overdue import Silence

Row = dict[str, object]


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Tell of the silences that are no hang and no crash, in the first window that knows of each.

    `severity` is the time lost to a pause over the window's length; 0 for `ended`. `score` is the silence over the
    longest one before. `confidence` of `ended` is the chance that the job ended. While nothing else is seen, only
    silences are told in which the job cannot have ended in order: that a job and its collector end is no news. If the
    job goes on, it has paused if it goes on where it stood; else the collector may have stopped.
    """
    known = set(evidence.once(hang.find, settings)["job_id"])
    rows = []
    for silence in (*evidence.rests, *evidence.silences):
        if silence.is_news and _is_witnessed(silence) and silence.gap.job_id not in known:
            pauses = _has_gone_on(silence) or _is_saving(silence)
            row = _pause_row(silence, evidence, settings) if pauses else _ended_row(silence)
            rows += [] if row is None else [row]
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _has_gone_on(silence: Silence) -> bool:
    return silence.over and not silence.restarted


def _is_witnessed(silence: Silence) -> bool:
    """Return whether the collector did not just stop, or end with its job."""
    return not (silence.unwitnessed if _has_gone_on(silence) else silence.alone and may_have_ended(silence))


def _is_saving(silence: Silence) -> bool:
    """Return whether members have written a checkpoint until now, or less than a step ago."""
    wrote_ns, now_ns = silence.wrote_ns, silence.until_ns
    return silence.saved >= CHECKPOINT_BYTES and not silence.over and now_ns - wrote_ns <= silence.where.period_ns


def _pause_row(silence: Silence, evidence: Evidence, settings: DiagnosisSettings) -> Row | None:
    """Return the row of a job that went on, or still saves; None if its steps take as long now and then, or if it has
    paused like that before."""
    gap, where = silence.gap, silence.where
    silent_ns = silence.until_ns - gap.since_ns
    model = duration_model.fitted(where.lengths_ns)
    if model is None or silence.until_ns - where.ended_ns < model.least_ns(settings):
        return None
    saves = silence.saved >= CHECKPOINT_BYTES
    if is_habit(gap.job_id, gap.since_ns, silent_ns, where.period_ns, evidence, saves=saves):
        return None
    lost_ns = silent_ns - min(gap.longest_ns, where.period_ns)
    before = np.array([0]), np.array([gap.since_ns - where.period_ns])
    first = saves and not writes_in(gap.job_id, *before, evidence).any()
    lasted = f"was silent for {silent_ns / 1e9:.1f} s until it went on"
    if not silence.over:
        lasted = f"had been silent for {silent_ns / 1e9:.1f} s when the window ended, and was still writing"
    return _common_columns(silence) | {
        "kind": "checkpoint_stall" if saves else "cross_step",
        "severity": lost_ns / evidence.window.length_ns,
        "explanation": f"{_silence_sentence(silence)}, and {lasted}{FIRST_SAVE * first}.{_doubt(silence)}",
        "confidence": (EVEN_ODDS if first else 1.0) if saves else None,
        "steps": 1,
        "lost_s": lost_ns / 1e9,
    }


def _doubt(silence: Silence) -> str:
    """Return how sure it is that a job paused; nothing where others are seen meanwhile."""
    if not (silence.over and silence.alone):
        return ""
    paused = silence.in_place
    return (
        " No other flow was seen meanwhile, but the job went on where it stood: "
        f"it paused ({paused:.0%}), or the collector stopped ({1 - paused:.0%})."
    )


def _ended_row(silence: Silence) -> Row:
    """Return the row of a job that is silent, or began anew."""
    may_be = readings(silence)
    silent_s = (silence.until_ns - silence.gap.since_ns) / 1e9
    lasted = f"for {silent_s:.0f} s until it began anew" if silence.over else f"for at least {silent_s:.0f} s"
    unseen = "No other flow was seen since. " * silence.alone
    said = f"{_silence_sentence(silence)}, and was silent {lasted}. {unseen}{', '.join(_reading_words(may_be))}."
    return (
        _common_columns(silence)
        | candidate_columns(may_be)
        | {
            "kind": "ended",
            "severity": 0.0,
            "explanation": said,
            "confidence": may_be.get("ended", 0.0),
        }
    )


def _common_columns(silence: Silence) -> Row:
    gap = silence.gap
    return {
        "job_id": gap.job_id,
        "subject_type": "job",
        "subject": gap.job_id,
        "start_ns": gap.since_ns,
        "end_ns": silence.until_ns,
        "score": (silence.until_ns - gap.since_ns) / max(gap.longest_ns, silence.where.period_ns),
    }


def _silence_sentence(silence: Silence) -> str:
    where = silence.where
    wrote = f", after its members began to write {silence.saved / 1e6:,.0f} MB to storage"
    stood = "in" if where.midway else "after the end of"
    written = wrote * (silence.saved >= CHECKPOINT_BYTES)
    return f"The job fell silent {stood} a step of {where.period_ns / 1e9:.1f} s{written}"


def _reading_words(may_be: Mapping[str, float]) -> Iterator[str]:
    words = {
        "ended": "it ended in order",
        "hung": "it hangs or hung",
        "unseen": "the collector stopped",
        "paused": "it pauses",
    }
    for number, (name, chance) in enumerate(may_be.items()):
        text = f"{words[name]} ({chance:.0%})"
        yield text if number else text[0].upper() + text[1:]
