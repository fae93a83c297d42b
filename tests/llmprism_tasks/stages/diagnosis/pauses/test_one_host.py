"""Whether a job's pauses are those of one host that all others wait for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from handmade import MB, MS, WINDOW
from job_evidence import STEP, history, kinds, working

from llmprism_tasks.stages.diagnosis.pauses.one_host import find_one_host
from llmprism_tasks.stages.diagnosis.step_times.course import steps_of

LONG = dict.fromkeys((2, 5, 11, 14, 17), 600.0)
SHORT = dict.fromkeys((3, 7, 8, 12, 16, 19), 300.0)


@pytest.mark.parametrize(
    ("by", "begun", "shown"),
    [(LONG, "acdef", 5), (LONG | SHORT, "acdef", 5), (LONG, "abcdef", None), (SHORT, "acdef", None)],
    ids=["one host", "short ones beside", "all", "short ones alone"],
)
def test_pauses_no_longer_than_usual_silences_do_not_show_who_is_waited_for(
    by: Mapping[int, float], begun: str, shown: int | None
) -> None:
    """A step computes for 500 ms, then these send a little ahead, and all wait for so long before they reduce."""
    lengths = [STEP + by.get(number, 0) for number in range(30)]
    spans, hops, rows = history(lengths, current=30), [*pairwise("abcdef"), ("f", "a")], []
    for number, start_ns, end_ns in spans.select("step_index", "start_ns", "end_ns").iter_rows():
        start, end = ((ns - WINDOW.start_ns) / MS for ns in (start_ns, end_ns))
        rows += [(end - 490, end - 1, src, dst, 150 * MB) for src, dst in hops]
        rows += [(start + 500, start + 501, src, dst, MB) for src, dst in hops if number in by and src in begun]
    evidence = dataclasses.replace(working([{addr: [500.0] * 30 for addr in "abcdef"}]), flows=kinds(dp=rows))
    steps = steps_of("j", spans)
    assert steps is not None
    found = find_one_host(steps, np.isin(np.arange(30), [*by]), evidence)
    assert (found and (found.host, found.pauses)) == (shown and ("host-b", shown))
