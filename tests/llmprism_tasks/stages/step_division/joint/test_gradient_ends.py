"""Gradient ends: where steps end if only some pairs, or some messages, synchronise gradients and others never pause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, every, flows, ring

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_steps import Found, recut_at_step_ends
from llmprism_tasks.stages.step_division.joint import gradient_ends, job_steps

DEFAULT = RhythmSettings()
STEPS = every(1000, count=20)
HOPS = ["ab", "bc", "cd", "da", "ef", "fg", "gh", "he"]
REPLICAS = ["ae", "bf", "cg", "dh"]


def hybrid(gradient: int = 2 * MB, hops: Sequence[str] = HOPS) -> list[Row]:
    """Return steps that end after 980 ms: groups of NICs gather shards of parameters until 280 ms after a step's begin,
    and from 480 ms on, each hop at times of its own. Gradients are reduced between the groups then."""
    draw = np.random.default_rng(4)
    rows: list[Row] = []
    for step in STEPS:
        for src, dst in hops:
            begins = [*draw.uniform(20, 270, 2), *draw.uniform(480, 960, 4)]
            rows += [(step + at, step + at + 10, src, dst, 20 * MB) for at in begins]
        for after in (560, 690, 820, 970):
            for pair in REPLICAS:
                rows += ring(pair, [step + after], length=10, parts=1, size=gradient)
    return rows


def ended_ms(rows: list[Row], kind: str = "dp") -> tuple[list[float], list[float]]:
    """Return when the joint steps of a job end, and when they do by the pairs that synchronise gradients, all of one
    kind."""
    table = flows(rows)
    joint = job_steps.steps_of_jobs(table.with_columns(job_id=pl.lit("j")), DEFAULT)
    pairs = table.select("src_addr", "dst_addr").unique().with_columns(kind=pl.lit(kind))
    own = gradient_ends.steps_ended_by(joint, pairs, DEFAULT)
    found = (one.numbered.group_by("step").agg(pl.col("flow_end_ns").max()).sort("step") for one in (joint, own))
    before, after = ([(end - WINDOW.start_ns) / MS for end in one["flow_end_ns"]] for one in found)
    return before, after


def tokens(seed: int) -> list[Row]:
    """Return steps that end after 970 ms: tokens of any size in both passes, then gradients of one size over two of the
    same pairs each way."""
    draw = np.random.default_rng(seed)
    rows: list[Row] = []
    for step in STEPS:
        for src, dst in ("ab", "ba", "cd", "dc", "ac", "ca", "bd", "db"):
            begins = [*draw.uniform(20, 270, 8), *draw.uniform(520, 900, 4)]
            rows += [(step + at, step + at + 2, src, dst, int(draw.uniform(5, 12) * MB)) for at in begins]
        for pair in ("ac", "bd"):
            rows += ring(pair, [step + 960], length=10, parts=1, size=20 * MB)
    return rows


@pytest.mark.parametrize(("gradient", "alone"), [(2 * MB, True), (29 * MB, True), (31 * MB, False)])
def test_gradients_between_groups_that_share_parameters_end_the_step(gradient: int, *, alone: bool) -> None:
    """HSDP: the longest silence is that between the passes. Each NIC sends 120 MB of shards in a step, and gradients
    four times: where these are most of its bytes, the pairs are links like others, and steps stay as they were."""
    joint, own = ended_ms(hybrid(gradient))
    assert joint[1] % 1000 < 300
    assert own == (pytest.approx([step + 980 for step in STEPS]) if alone else joint)


def test_two_who_share_parameters_are_no_link_of_a_pipeline() -> None:
    """They send each other as much as stages of a pipeline do."""
    joint, own = ended_ms(hybrid(hops=["ab", "ba", "cd", "dc", "ef", "fe", "gh", "hg"]))
    assert joint[1] % 1000 < 300
    assert own == pytest.approx([step + 980 for step in STEPS])


def test_what_never_pauses_takes_part_in_no_step() -> None:
    """Shards go around both ways without a pause, and show no step. But they would count as pairs that most steps lack,
    so that the first one, which has none before it, would be none."""
    rows = [row for row in hybrid() if row[2] + row[3] not in HOPS]
    for src, dst in (*HOPS, *(hop[::-1] for hop in HOPS)):
        rows += [(begin, begin + 40, src, dst, 5 * MB) for begin in range(0, int(STEPS[-1]) + 1000, 40)]
    joint, own = ended_ms(rows)
    assert own == joint == pytest.approx([step + 980 for step in STEPS])


@pytest.mark.parametrize(("links", "asked"), [([], False), (["ef", "fg", "gh", "he"], True)])
def test_passes_tell_the_end_only_of_jobs_that_send_nothing_else(
    links: list[str], monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    """Blocks of context are sent beside gradients, and the backward pass does not end with its last long silence. Of
    shards it does, and nobody is asked anew where the steps end."""
    table = flows(hybrid(31 * MB))
    joint = job_steps.steps_of_jobs(table.with_columns(job_id=pl.lit("j")), DEFAULT)
    together = joint.streams.together
    ended = together._replace(streams=together.streams.with_columns(ended=pl.lit(value=True)))
    joint = replace(joint, streams=replace(joint.streams, together=ended))
    pairs = table.select("src_addr", "dst_addr").unique().filter(~pl.concat_str(pl.all()).is_in(links))
    groups: list[str] = []

    def recut(*args: Any, **others: Any) -> Found:
        groups.extend(args[1]["group"].unique())
        return recut_at_step_ends(*args, **others)

    monkeypatch.setattr(gradient_ends, "recut_at_step_ends", recut)
    gradient_ends.steps_ended_by(joint, pairs.with_columns(kind=pl.lit("dp")), DEFAULT)
    assert groups == (["j"] if asked else [])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_sent_beside_gradients_of_one_size_ends_no_step(seed: int) -> None:
    """The longest silence, and the latest bytes, are those of tokens."""
    _, own = ended_ms(tokens(seed), "ep")
    assert own == [step + 970 for step in STEPS]


def layers(
    gradients: Sequence[int], *, share: bool = True, hops: Sequence[str] = ("ab", "bc", "cd", "da")
) -> list[Row]:
    """Return steps that end after 945 ms: each NIC sends 30 MB of tokens every 40 ms in the forward pass, every 80 in
    the backward pass, and gradients of one size after three of its layers, over pairs that carry tokens, too."""
    draw = np.random.default_rng(5)
    nics, rows = "abcd", list[Row]()
    for step in STEPS:
        for at in (*range(40, 360, 40), *range(370, 960, 80)):
            for src in nics:
                parts = draw.dirichlet([40] * 3) * 30 * MB
                rows += [
                    (step + at, step + at + 4, src, dst, int(size))
                    for dst, size in zip(nics.replace(src, ""), parts, strict=True)
                ]
        for at, size in zip((535, 735, 935), gradients, strict=True):
            sizes = [size] * len(hops) if share else draw.uniform(0.9, 1.1, len(hops)) * size
            rows += [(step + at, step + at + 10, *hop, int(moved)) for hop, moved in zip(hops, sizes, strict=True)]
    return rows


def test_gradients_among_tokens_end_the_step_they_are_last_in() -> None:
    """Both passes send as many tokens, so that those of a step come latest after a part of the backward pass: they say
    nothing of the end. Nor does what has another size in each step."""
    _, own = ended_ms(layers([9 * MB, 7 * MB, 7 * MB]), "ep")
    assert own == pytest.approx([step + 945 for step in STEPS])
    _, unlike = ended_ms(layers([9 * MB, 7 * MB, 7 * MB], share=False), "ep")
    assert unlike != own


def test_gradients_of_some_nics_among_tokens_say_nothing() -> None:
    """A collector joined those of the others with tokens, and the last ones maybe as well."""
    _, some = ended_ms(layers([9 * MB, 7 * MB, 7 * MB], hops=("ab", "bc", "cd")), "ep")
    assert some != pytest.approx([step + 945 for step in STEPS])


@pytest.mark.parametrize(
    ("places", "soon"),
    [((40, 60, 80), True), ((10, 60, 90), False), ((20, 40, 60), False), ((35, 50, 72), True), ((25, 40, 62), False)],
    ids=["soon after the last", "amid them", "later", "hardly soon", "hardly late"],
)
def test_steps_that_end_soon_after_the_last_gradient_end_there(places: Sequence[int], *, soon: bool) -> None:
    """Of each step, 100 long, gradients are sent at these places."""
    rows = [("g", step, 100 * step, 100 * step + at) for step in range(8) for at in places]
    frame = pl.DataFrame(rows, ["group", "step", "end_ns", "flow_start_ns"], orient="row")
    assert gradient_ends._ended_between(frame)["group"].to_list() == (["g"] if soon else [])
