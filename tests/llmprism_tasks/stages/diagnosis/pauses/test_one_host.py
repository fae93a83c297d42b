"""Whether a job's pauses are those of one host or NIC that all others wait for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from handmade import MB, MS, WINDOW
from job_evidence import STEP, history, kinds, working

from llmprism_tasks.stages.diagnosis.pauses.one_host import find_one_host, find_one_nic
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


@pytest.mark.parametrize(
    ("odd", "addr", "erratic"),
    [
        ({2: "b1", 5: "b1", 11: "b1"}, "b1", True),
        ({2: "b1", 5: "", 11: "b1"}, "b1", True),
        ({2: "b1", 5: "c1", 11: "b1"}, "b1", True),
        ({2: "b1", 7: "b1", 12: "b1"}, "b1", False),
        ({2: "b1", 5: "b1"}, "b1", False),
        ({2: "b1", 5: "c1"}, None, None),
        ({2: "b1"}, None, None),
        ({2: "b1", 5: "", 11: "", 14: "b1"}, None, None),
    ],
    ids=["all", "most", "of others one", "evenly spaced", "two", "one each", "one", "half"],
)
def test_a_nic_whose_rail_alone_lacks_a_message_in_most_pauses_has_lost_its_link(
    odd: Mapping[int, str], addr: str | None, erratic: bool | None
) -> None:
    """Of three rails and four hosts, all but the hops of one NIC send half of their step, then all wait."""
    lengths = [STEP + 2000.0 * (number in odd) for number in range(30)]
    spans, rows = history(lengths, current=30), []
    hops = [(f"{src}{rail}", f"{dst}{rail}") for src, dst in ("ab", "bc", "cd", "da") for rail in range(3)]
    for number, start_ns, end_ns in spans.select("step_index", "start_ns", "end_ns").iter_rows():
        start, end = ((ns - WINDOW.start_ns) / MS for ns in (start_ns, end_ns))
        for hop in hops:
            rows += [(start + 500, start + 600, *hop, 75 * MB)] if odd.get(number, "") not in hop else []
            rows += [(end - 200, end - 1, *hop, (75 if odd.get(number, "") not in hop else 150) * MB)]
    hosts = {nic: f"host-{nic[0]}" for nic, _ in hops}
    evidence = dataclasses.replace(working([dict.fromkeys(hosts, [500.0] * 30)], hosts=hosts), flows=kinds(dp=rows))
    steps = steps_of("j", spans)
    assert steps is not None
    found = find_one_nic(steps, np.isin(np.arange(30), [*odd]), evidence)
    assert (found and (found.addr, found.pauses, found.erratic)) == (addr and (addr, len(odd), erratic))
