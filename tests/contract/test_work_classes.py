"""Each kind of diagnosis asks for one kind of work."""

from __future__ import annotations

from llmprism_tasks.contract.fault_catalogue import KINDS
from llmprism_tasks.contract.work_classes import WORK_CLASSES, work_class


def test_every_kind_has_a_class_and_no_class_is_of_an_unknown_kind() -> None:
    assert set(WORK_CLASSES) == set(KINDS)
    assert work_class("not a kind") is None
