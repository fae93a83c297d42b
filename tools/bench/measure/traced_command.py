"""The command `llmprism`, with what its parts take written to a file.

Run as `python -m bench.measure.traced_command FILE analyze ...`.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from bench.measure.trace_spans import Spans

Named = Callable[..., str]


def _always(name: str) -> Named:
    return lambda *args, **kwargs: name


ANALYZE, STORE = "llmprism_tasks.execution.analyze", "llmprism_tasks.warehouse.store"
ENDING = "llmprism_tasks.execution.stage_task"
HOOKS: tuple[tuple[str, str, Named], ...] = (
    ("llmprism_tasks.warehouse.landing.landing", "land_all", _always("landing")),
    (ANALYZE, "validate_landed", _always("validation")),
    (ANALYZE, "derive_tables", _always("stages")),
    (ENDING, "validate_results", _always("results_validation")),
    (ENDING, "finish", _always("finish")),
    (ANALYZE, "send_messages", _always("send_messages")),
    (STORE, "read", _always("read")),
    (STORE, "read_each", _always("read")),
    (STORE, "replace", _always("write")),
)
"""Module, function and the span's name. Reads and writes are spans inside those of the parts that do them."""


def hook(spans: Spans) -> None:
    """Put spans around the pipeline's functions, where its modules look them up."""
    for module, function, name in HOOKS:
        found = importlib.import_module(module)
        setattr(found, function, spans.hooked(getattr(found, function), name))


def main(argv: Sequence[str]) -> NoReturn:
    """Run a command line of llmprism; the first word is the file to write."""
    from llmprism_tasks import cli  # noqa: PLC0415 - importing is part of what is measured

    out, *words = argv
    spans = Spans()
    with spans.span("imports"):
        hook(spans)
    code = cli.main(words)
    Path(out).write_text(json.dumps(spans.figures()), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
