"""Serving: what a worker's process does: it takes the parts that it is given through the stages."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from llmprism_tasks import deriving, passing
from llmprism_tasks.contract.frames import Part
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings


def serve() -> None:
    """Answer what a `Worker` asks, until nobody does."""
    with Connection(int(sys.argv[1])) as connection, suppress(EOFError):
        folder, method = connection.recv()
        deriving.prepare(method)
        while True:
            for answer in _answers(Path(folder), *connection.recv()):
                connection.send(answer)


def _answers(
    folder: Path, names: Sequence[str], window: Window, settings: Settings, turns: Sequence[Collection[str]]
) -> Iterator[object]:
    """Yield of each turn which stages made which tables, and what stages took, or what went wrong."""
    try:
        given = {name: passing.taken(folder, name) for name in names}
        topology = given.pop("topology")
        part = Part(given.pop("flows"), given.pop("elsewhere", None), given)
        for derived in deriving.derive_in_turn(part, topology, window, settings, turns):
            tables = [(stage, table) for stage, made in derived.made.items() for table in made]
            for stage, table in tables:
                passing.put(derived.made[stage][table], folder, f"{stage}.{table}")
            yield tables, derived.stage_ns
    except Exception as error:  # it is raised where the question was asked
        yield error
