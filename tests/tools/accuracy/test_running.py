"""Running: a source is simulated, analysed in a process of its own, kept, and not run again."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from accuracy.runs import results
from accuracy.runs.results import kept
from accuracy.runs.runner import apart, run_missing
from accuracy.runs.sources import Source
from llmprism_tasks.simulate.scenario.scenario_file import presets

SMALL = presets()["small"]


def test_a_function_runs_apart() -> None:
    assert apart(os.getpid) != os.getpid()


def test_what_is_missing_is_run_once_and_what_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    small = Source("small", "0", tomllib.loads(SMALL.read_text()), minutes=1, methods=("joint",))
    nowhere = Source("captures", "nowhere", folder=str(tmp_path / "nowhere"))
    said: list[str] = []
    failed = run_missing([small, nowhere], ["joint"], jobs=1, say=said.append)
    assert len(said) == 2
    assert [line.split(",")[0] for line in failed] == ["captures nowhere"]
    result = kept(small, "joint", of_any_version=True)
    assert result is not None
    assert result["figures"]["all"]["exact"] == result["figures"]["all"]["windows"] == 2
    assert len(result["errors"]) > 100
    said.clear()
    monkeypatch.setattr(results, "version", lambda: result["version"])
    assert run_missing([small], ["joint", "published"], jobs=1, say=said.append) == []
    assert said == []


def test_an_interruption_ends_a_run_before_all_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    said: list[str] = []

    def interrupt(line: str) -> None:
        said.append(line)
        raise KeyboardInterrupt

    nowhere = [Source("captures", str(at), folder=str(tmp_path / str(at))) for at in range(5)]
    with pytest.raises(KeyboardInterrupt):
        run_missing(nowhere, ["joint"], jobs=1, say=interrupt)
    assert len(said) <= 2
