"""What to do next: one advice for reports, pages and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmprism_tasks.contract.fault_catalogue import CHANCE, EFFECT, HIDDEN, KINDS, LASTS, WAIT, advice


def incident(**given: Any) -> dict[str, Any]:
    whole = {"kind": "slow_compute", "subject_type": "addr", "state": "open", "went_on": False, "effect_of": None}
    return whole | {"windows": LASTS} | given


def test_what_one_window_showed_is_to_be_waited_for_before_the_action() -> None:
    now = KINDS["slow_compute"].next
    assert advice(incident()) == now
    assert advice(incident(windows=LASTS - 1)) == WAIT + now
    assert advice(incident(windows=LASTS - 1, state="closed")) == CHANCE


def test_a_silence_is_acted_upon_at_once() -> None:
    assert advice(incident(kind="hang", windows=1)) == KINDS["hang"].next


def test_an_effect_leads_to_its_cause() -> None:
    assert advice(incident(kind="cross_step", effect_of="incident-1")) == EFFECT
    assert advice(incident(kind="cross_step")) != EFFECT


@pytest.mark.parametrize(("subject_type", "words"), [("host", "all its GPUs"), ("addr", "the GPU's clocks")])
def test_of_a_host_any_gpu_may_be_the_slow_one(subject_type: str, words: str) -> None:
    told = advice(incident(subject_type=subject_type))
    assert told is not None
    assert words in told


def test_a_kind_that_is_not_in_the_catalogue_has_no_advice() -> None:
    assert advice(incident(kind="unknown")) is None


def test_views_know_the_kinds_that_a_job_hides(project: Path) -> None:
    for place in ("views/job_health_by_minute.sql", "statements/incidents/find_incidents.sql"):
        sql = (project / "sql" / place).read_text(encoding="utf-8")
        assert {kind for kind in HIDDEN if f"'{kind}'" not in sql} == set()
