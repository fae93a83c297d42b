"""What can be said of the flows that are landed without reading them: how many, whose, and whether they changed."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.store import IN_SPAN


class FlowsDigest(NamedTuple):
    """How many flows windows have, and a digest of all that stages see of them."""

    rows: int
    digest: str


def digest_of(warehouse: Warehouse, span: Window) -> FlowsDigest:
    """Return how many flows the windows of a span have, and a digest of their rows, in whatever order they are."""
    values = {"start_ns": span.start_ns, "end_ns": span.end_ns}
    with warehouse.reading() as connection:
        ((count, digest),) = connection.execute(statement("handover_digest"), values).fetchall()
    return FlowsDigest(count, digest)


def addresses(warehouse: Warehouse, span: Window) -> set[str]:
    """Return the source and destination addresses of a span's flows."""
    ends = " UNION ".join(f"SELECT {end}_addr FROM stored.flows WHERE {IN_SPAN}" for end in ("src", "dst"))
    named = f"SELECT value FROM stored.names WHERE number IN ({ends})"
    with warehouse.reading() as connection:
        rows = connection.execute(named, {"start_ns": span.start_ns, "end_ns": span.end_ns}).fetchall()
    return {str(addr) for (addr,) in rows}


def sees(warehouse: Warehouse, span: Window, addrs: pl.Series) -> bool:
    """Return whether a flow of a span comes from or goes to one of some addresses."""
    known = "SELECT number FROM stored.names WHERE value IN (SELECT addr FROM incoming_addrs)"
    ends = (f"EXISTS (FROM stored.flows WHERE {IN_SPAN} AND {end}_addr IN ({known}))" for end in ("src", "dst"))
    with warehouse.reading() as connection:
        connection.register("incoming_addrs", addrs.alias("addr").to_frame().to_arrow())
        values = {"start_ns": span.start_ns, "end_ns": span.end_ns}
        return connection.execute(f"SELECT {' OR '.join(ends)}", values).fetchone() == (True,)
