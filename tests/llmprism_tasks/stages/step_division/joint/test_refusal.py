"""What single pairs show is refused where bytes come back later than in the step that they were sent in."""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import numpy as np
import polars as pl
import pytest
from handmade import MB, Row, every, flows, ring, settings

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_steps import Found
from llmprism_tasks.stages.step_division.joint import job_steps, refusal
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps

STEPS = 11
FORWARD, BACKWARD, REDUCED = [0, 200], [300, 800], 950
"""When the first stage's messages of a step begin and end, and its gradients end, ms; each later stage is 20 ms off."""


def gpipe() -> list[Row]:
    """Return steps of a second of two replicas of three stages, all forward passes before all backward passes."""
    rows = list[Row]()
    for begin in every(1000, count=STEPS):
        for stages in ("abc", "def"):
            for i, (front, back) in enumerate(pairwise(stages)):
                for part in range(8):
                    there, again = (since + (until - since) * part / 7 for since, until in (FORWARD, BACKWARD))
                    rows.append((begin + there + 20 * i, begin + there + 20 * i + 5, front, back, 8 * MB))
                    rows.append((begin + again - 20 * i, begin + again - 20 * i + 5, back, front, 8 * MB))
        for pair in ("ad", "da", "be", "eb", "cf", "fc"):
            rows += [(begin + REDUCED - 50, begin + REDUCED, *pair, 100 * MB)]
    return rows


@pytest.mark.parametrize(("lost", "parts"), [(None, []), (STEPS // 2, [True])])
def test_what_the_data_end_in_the_middle_of_may_still_come_back(
    lost: int | None, parts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where GPipe turns nothing ends for longest, so steps are cut there, and of the last one half is seen.

    That of another one half is lost is not the same.
    """
    found = list[list[bool]]()

    def refused(joint: JointSteps, values: RhythmSettings) -> pl.DataFrame:
        groups = refusal.groups_without_steps(joint, values)
        found.append(groups["parts"].to_list())
        return groups.clear()

    monkeypatch.setattr(job_steps, "groups_without_steps", refused)
    rows = [row for row in gpipe() if lost is None or not 0 <= row[0] - 1000 * lost < BACKWARD[0] - 50]
    steps = job_steps.steps_of_jobs(flows(rows).with_columns(job_id=pl.lit("j")), settings().rhythm)
    assert steps.streams.together.streams.is_empty()
    assert found == [parts]


@pytest.mark.parametrize(("hosts", "together", "refused"), [("abcd", False, 1), ("ab", True, 0)])
def test_only_what_single_pairs_show_is_refused(
    hosts: str, together: bool, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nobody sends alike in steps: a template of all pairs says what is alike in them."""
    buckets = [begin + at for begin in every(2400, count=STEPS, start=500) for at in range(0, 1500, 300)]
    ahead = ring(hosts, [at - 22 for at in buckets], length=1, parts=1, size=2 * MB)
    alone = ring(hosts, every(1000, count=STEPS, start=500))
    rows = [*ahead, *ring(hosts, buckets, length=6, parts=1)] if together else alone
    joint = job_steps.steps_of_jobs(flows(rows).with_columns(job_id=pl.lit("j")), settings().rhythm)
    assert joint.streams.together.streams.is_empty() != together
    monkeypatch.setattr(refusal.balance, "alike_bytes_ratio", lambda *_: 0.0)
    assert refusal.groups_without_steps(joint, settings().rhythm).height == refused


@pytest.mark.parametrize(("forward", "steps"), [(10, 39), (12, 0)])
def test_layers_without_gradients_beside_others_with_them_are_no_steps(forward: int, steps: int) -> None:
    """All layers gather parameters, and most reduce gradients, in any order: most bytes are in layers alike."""
    begins = every(1000, count=40)
    backward = random.Random(4).sample(begins, 40 - forward)
    rows = [*ring("abcd", begins, size=8 * MB), *ring("dcba", backward, size=60 * MB)]
    joint = job_steps.steps_of_jobs(flows(rows).with_columns(job_id=pl.lit("j")), settings().rhythm)
    assert joint.numbered["step"].n_unique() == steps


@pytest.mark.parametrize(("every_nth", "refused"), [(8, [True]), (1, [])])
def test_what_links_show_is_refused_if_what_joins_their_pipelines_is_sent_in_few_of_it(
    every_nth: int, refused: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four pipelines of two stages; the first ones exchange gradients with each micro-batch, or after many, when each
    takes as long as in that step."""
    found = list[list[bool]]()

    def asked(joint: JointSteps, values: RhythmSettings) -> pl.DataFrame:
        groups = refusal.groups_without_steps(joint, values)
        found.append(groups["parts"].to_list())
        return groups.clear()

    monkeypatch.setattr(job_steps, "groups_without_steps", asked)
    draw = random.Random(3)
    begins = list[float]()
    for _ in range(6):
        turn = draw.uniform(300, 600)
        begins += [(begins[-1] if begins else 0.0) + turn * (1 + part) for part in range(8)]
    links = [
        row
        for front, back in ("ae", "bf", "cg", "dh")
        for at in begins
        for row in [(at, at + 20, front, back, 2 * MB), (at + 150, at + 170, back, front, 2 * MB)]
    ]
    gradients = ring("abcd", [at + 180 for at in begins[every_nth - 1 :: every_nth]], length=60, size=5 * MB)
    job_steps.steps_of_jobs(flows([*links, *gradients]).with_columns(job_id=pl.lit("j")), settings().rhythm)
    assert found == [refused]


@pytest.mark.parametrize(("seen", "told"), [(14, ["g"]), (15, [])])
def test_single_pairs_that_break_off_say_less_than_a_template(
    seen: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`NEARLY_ALL` of the twenty steps that the template shows from the fifth one on."""
    ends = np.arange(1, 26) * 1000
    streams = pl.DataFrame({"pair": [0], "group": ["g"]})
    template = Found(streams, ends, np.arange(25), np.array([0]), np.array([25]))
    joint = cast("JointSteps", SimpleNamespace(streams=SimpleNamespace(alike=template)))
    shown = SimpleNamespace(together=False, pairs=streams, ends=ends[: 5 + seen])
    monkeypatch.setattr(refusal, "shown_steps", lambda _: [shown])
    assert refusal.groups_that_break_off(joint, 6000, 26_000).to_list() == told
