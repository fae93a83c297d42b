"""A replay with the durations that were measured ends when the steps did, and waiting comes out of it by itself."""

from __future__ import annotations

import polars as pl
from handmade import MB, MS, WINDOW, Row, flows

from llmprism_tasks.contract import frames
from llmprism_tasks.stages.diagnosis.cost.step_graph import WORK, step_graph
from llmprism_tasks.stages.timeline.breakdown import account

MESSAGES: list[Row] = [
    *[(t, t + 2, "a", "b", MB) for t in (10, 42, 74)],
    *[(t, t + 2, "b", "a", MB) for t in (42, 74, 106)],
]
"""A pipeline of 2 pp_stages, 3 micro-batches; passes take 10 and 20 ms, messages 2 ms; the last one is over at 128."""


def test_the_replay_ends_when_the_step_did_and_earlier_with_quicker_work() -> None:
    other = [
        (start, end, {"a": "c", "b": "d"}[src], {"a": "c", "b": "d"}[dst], n) for start, end, src, dst, n in MESSAGES
    ]
    rings: list[Row] = [
        (start, start + 20, src, dst, 80 * MB)
        for start, one, two in ((128, "a", "c"), (108, "b", "d"))
        for src, dst in ((one, two), (two, one))
    ]
    known = flows([*MESSAGES, *other, *rings]).with_columns(job_id=pl.lit("j"), kind=pl.lit("pp"))
    size = pl.col("bytes") > MB
    known = known.with_columns(kind=pl.when(size).then(pl.lit("dp")).otherwise("kind"))
    base = WINDOW.start_ns
    ends = {"a": 148, "c": 148, "b": 128, "d": 128}
    steps = pl.DataFrame(
        [(base, "j", addr, 0, base, base + end * MS) for addr, end in ends.items()],
        schema=frames.empty("steps").schema,
        orient="row",
    )
    members = pl.DataFrame(
        [(base, "j", addr, "h", place, place) for addr, place in (("a", 0), ("b", 1), ("c", 0), ("d", 1))],
        schema=frames.empty("job_members").schema,
        orient="row",
    )
    found = account(known, steps, pl.DataFrame({"job_id": ["j"], "sharded": [False]}), members)
    graph = step_graph(found)
    measured = graph.operations["duration_ns"].cast(pl.Float64)
    (end_ns,) = graph.step_ends(measured.to_numpy(), found.parts)["end_ns"]
    assert abs(end_ns - base - 148 * MS) < 0.01 * MS
    halved = measured * pl.select(pl.when(graph.operations["kind"] == WORK).then(0.5).otherwise(1.0)).to_series()
    # Half of F0, both passes of the last pp_stage three times, the last backward of the first, messages and ring.
    expected = 5 + 2 + 15 + 2 + 15 + 2 + 15 + 2 + 10 + 20
    (end_ns,) = graph.step_ends(halved.to_numpy(), found.parts)["end_ns"]
    assert abs(end_ns - base - expected * MS) < 0.01 * MS
