"""Measurements that are made in parts: what is added up, and what is not."""

from __future__ import annotations

from reliability.results import together


def test_counts_add_up_lists_follow_each_other_and_every_commit_is_named() -> None:
    one = {"name": "file", "runs": 20, "differ": ["run 1: jobs"], "counts": {"landed": 3}, "peak_mb": 400}
    two = {"name": "file", "runs": 30, "differ": [], "counts": {"landed": 4}, "peak_mb": 350}
    both = together(one | {"commit": "a", "day": "2026-01-01"}, two | {"commit": "b", "day": "2026-01-01"})
    assert both == {
        "name": "file",
        "runs": 50,
        "differ": ["run 1: jobs"],
        "counts": {"landed": 7},
        "peak_mb": 400,
        "commit": "a, b",
        "day": "2026-01-01",
    }
