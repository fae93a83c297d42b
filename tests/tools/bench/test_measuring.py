"""What is measured is what was done: processes, spans inside spans, and the pipeline's functions where they are."""

from __future__ import annotations

import importlib
import json
import threading
import time
from pathlib import Path

import pytest

from bench.measure.process_cost import ProcessFailed, python
from bench.measure.trace_spans import Spans
from bench.measure.traced_command import HOOKS
from bench.page.cost_figures import by_part


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_process_costs_what_it_does() -> None:
    cost = python("-c", "import time; time.sleep(0.3); x = bytearray(200_000_000); print('done')")
    assert cost.wall_s > 0.3
    assert 0 < cost.cpu_s < cost.wall_s
    assert cost.peak_bytes > 200_000_000
    assert cost.said == "done\n"


def test_what_its_children_hold_counts_as_well() -> None:
    """They hold more than this process: Linux counts what a process had before it became another program."""
    child = "import sys; x = bytearray(800_000_000); print(flush=True); sys.stdin.read()"
    words = (
        "import subprocess as s, sys, time",
        f"y = s.Popen([sys.executable, '-c', {child!r}], stdin=s.PIPE, stdout=s.PIPE)",
        "x = bytearray(800_000_000); y.stdout.readline(); time.sleep(0.5)",
        "y.communicate()",
    )
    assert 1_600_000_000 < python("-c", "\n".join(words)).peak_bytes < 2_000_000_000


def test_a_process_that_fails_is_told_with_what_it_said() -> None:
    with pytest.raises(ProcessFailed, match="no such thing"):
        python("-c", "raise SystemExit('no such thing')")


def test_a_process_does_not_see_a_developers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMPRISM_PLACES__FLOWS", "mine")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    said = python("-c", "import os, sys; print(os.environ, sys.dont_write_bytecode)").said
    assert "mine" not in said
    assert said.endswith("False\n")


def test_what_starting_takes_is_what_an_analysis_imports() -> None:
    code = "import sys; from bench.measure.imports_only import main; main(); print(*sys.modules)"
    assert {"numba", "great_expectations", "llmprism_tasks.stages.diagnosis.phase"} <= set(
        python("-c", code).said.split()
    )


def test_spans_inside_spans_are_told_apart_and_not_counted_twice() -> None:
    spans = Spans()
    with spans.span("stage"):
        burn(0.05)
        with spans.span("write"):
            time.sleep(0.05)
    stage = by_part([{**spans.figures(), "watched": {"wall_s": 1.0, "cpu_s": 0.5}}])
    assert list(stage) == ["stage", "the rest"]
    assert stage["stage"]["write_s"] >= 0.05
    assert stage["stage"]["wall_s"] >= 0.1
    assert stage["stage"]["cpu_s"] < stage["stage"]["wall_s"]
    assert stage["the rest"]["wall_s"] == pytest.approx(1.0 - stage["stage"]["wall_s"])


TWO_SPANS = """
import json, pathlib, sys
from bench.measure import trace_spans
trace_spans.CLEAR_REFS = pathlib.Path(sys.argv[1])
spans = trace_spans.Spans()
with spans.span("large"):
    held = bytearray(300_000_000)
    held[::4096] = b"1" * len(held[::4096])
    del held
with spans.span("small"):
    pass
print(json.dumps(spans.figures()))
"""


def test_a_span_has_the_peak_of_its_own_time() -> None:
    figures = json.loads(python("-c", TWO_SPANS, "/proc/self/clear_refs").said)
    large, small = (span["peak_bytes"] for span in figures["spans"])
    assert figures["peak_bytes"] > 300_000_000
    if small is None:
        pytest.skip("this kernel does not let a peak of memory begin anew")
    assert figures["peak_bytes"] == large
    assert small < large - 200_000_000


def test_a_span_has_no_peak_where_linux_does_not_let_it_begin_anew(tmp_path: Path) -> None:
    figures = json.loads(python("-c", TWO_SPANS, str(tmp_path / "clear_refs")).said)
    assert figures["peak_bytes"] > 300_000_000
    assert figures["spans"][1]["peak_bytes"] is None


def test_a_function_is_measured_on_the_main_thread_alone() -> None:
    spans = Spans()
    hooked = spans.hooked(lambda name: name, lambda name: name)
    assert hooked("here") == "here"
    other = threading.Thread(target=hooked, args=("there",))
    other.start()
    other.join()
    assert [span["name"] for span in spans.ended] == ["here"]


@pytest.mark.parametrize(("module", "function"), [(module, function) for module, function, _ in HOOKS])
def test_what_is_hooked_is_there(module: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(module), function))
