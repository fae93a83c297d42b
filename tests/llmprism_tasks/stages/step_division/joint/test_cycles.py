"""Layers whose gradients single pairs take for steps are joined where a forward pass lies between every few of them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, flows, ring, settings

from llmprism_tasks.stages.step_division.joint import cycles, gradient_ends, job_steps
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps

NICS = "abcd"
LAYERS, STEPS, BEGUN = 6, 4, 3000.0


def experts() -> list[Row]:
    """Return steps of layers that exchange tokens in both passes, a quarter and half a second after each other, and
    reduce their gradients in the backward pass."""
    draw = np.random.default_rng(1)
    rows, begin = list[Row](), BEGUN
    for _ in range(STEPS):
        forward = [begin + 250 * layer for layer in range(LAYERS)]
        backward = [begin + 1500 + 500 * (layer + 1) for layer in range(LAYERS)]
        for at in [*forward, *[one - 100 for one in backward]]:
            for pair in permutations(NICS, 2):
                rows.append((at, at + 5, *pair, round(MB * draw.uniform(0.5, 1.0))))
        rows += ring(NICS, backward, length=40, parts=1, size=6 * MB)
        begin = backward[-1] + 50
    return rows


def _ends(joint: JointSteps) -> list[float]:
    """Return when the steps end, ms."""
    table = joint.taken.table.with_columns(step=joint.steps).filter(pl.col("step") >= 0)
    ends = table.group_by("step").agg(pl.col("end_ns").max()).sort("step")["end_ns"]
    return ((ends - WINDOW.start_ns) / MS).to_list()


def _steps(rows: list[Row]) -> JointSteps:
    return job_steps.steps_of_jobs(flows(rows).with_columns(job_id=pl.lit("j")), settings().rhythm)


def test_layers_between_forward_passes_are_one_step() -> None:
    joint = _steps(experts())
    assert _ends(joint) == pytest.approx([BEGUN + 4550 * (step + 1) - 10 for step in range(STEPS)], abs=20)
    assert np.nanmedian(joint.periods) == pytest.approx(4550 * MS, rel=0.02)


def buckets(first: int) -> list[Row]:
    """Return steps of five equal buckets in a ring of two hosts, and before them a longer forward pass and a small one.

    Parameters
    ----------
    first : bytes of the small one; 0 for none
    """
    begins = [BEGUN + 2400 * step for step in range(12)]
    each = [begin + at for begin in begins for at in range(0, 1500, 300)]
    rows = ring("ab", each, length=1, parts=1, size=2 * MB) + ring("ab", [at + 22 for at in each], length=6, parts=1)
    return rows + (ring("ab", [begin - 250 for begin in begins], length=2, parts=1, size=first) if first else [])


@pytest.mark.parametrize(("first", "steps"), [(100_000, 12), (0, 60)])
def test_equal_buckets_after_a_small_one_are_one_step(first: int, steps: int) -> None:
    assert len(_ends(_steps(buckets(first)))) == steps


def test_gradients_end_the_same_steps() -> None:
    joint = _steps(experts())
    pairs = [(src, dst, "dp") for src, dst in ("ab", "bc", "cd", "da")]
    ended = gradient_ends.steps_ended_by(
        joint, pl.DataFrame(pairs, schema=["src_addr", "dst_addr", "kind"], orient="row"), settings().rhythm
    )
    assert _ends(ended) == pytest.approx(_ends(joint))


@pytest.mark.parametrize(
    ("lasts", "expected"),
    [
        ([2.0, 0.5, 0.5, 0.5] * 3, [(4, 0)]),
        ([0.5, 2.0, 0.5, 0.5] * 3, [(4, 1)]),
        ([0.5, 2.0, 0.5, 0.5] * 2, []),
        ([1.0, 0.5, 0.5, 0.5] * 3, [(4, 0)]),
        ([0.8, 0.5, 0.5, 0.5] * 3, []),
        ([4.0, 0.5, 0.5, 0.5] * 3, []),
        ([2.0, 0.5, 0.5, 0.5, 2.0, 0.5, 0.5, 2.0, 0.5, 0.5, 0.5, 0.5], []),
        ([1.0] * 12, []),
    ],
    ids=["layers", "later", "too few", "just long", "too short", "pauses", "now and then", "steps"],
)
def test_the_longer_interval_comes_after_as_many_and_lasts_as_long_as_a_pass(
    lasts: list[float], expected: list[tuple[int, int]]
) -> None:
    assert cycles.cycles_by_time(np.array(lasts)) == expected


def test_pauses_in_which_nobody_sends_more_are_between_steps() -> None:
    sent = np.random.default_rng(3).uniform(5.9, 6.0, (4, 60))
    assert not cycles.sends_more(sent, 3, 0, 0.1)
    sent[:, ::3] = np.where(np.arange(20) % 2 > 0, 6.01, sent[:, ::3])
    assert not cycles.sends_more(sent, 3, 0, 0.1)
    sent[:, ::3] = 6.01
    assert cycles.sends_more(sent, 3, 0, 0.1)


def test_what_is_sent_in_pauses_comes_again() -> None:
    sent = np.tile([[9.0, 6.0, 6.0]], (4, 4))
    sent[:, ::3] *= [1.0, 2.0, 1.0, 2.0]
    assert not cycles.sends_more(sent, 3, 0, 0.1)
