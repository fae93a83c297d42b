"""Probes: which pairs of NICs to run a bandwidth test over, to part devices that flows do not tell apart.

A test across a path that has just one of the candidates is slow if that candidate is at fault, and quick otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from llmprism_tasks.contract.fault_catalogue import LINK, is_silent
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement

Row = dict[str, Any]


def probes(warehouse: Warehouse) -> list[Row]:
    """Return the tests that part the candidates of open incidents, the most expensive incident first.

    Of a silent job no test tells who fell silent; and candidates such as `paused` are no devices.

    Returns
    -------
    rows of `incident_id`, `candidate`, `odds`, and the test's `src_addr`, `dst_addr` and `switch_path`; these are None
    if every path that is known has another candidate, too. Flows are sent over one of several spines by their ports
    """
    with warehouse.reading() as connection:
        incidents = store.frame(connection.execute(statement("open_candidates"))).to_dicts()
        return [
            {"incident_id": incident["incident_id"]} | test
            for incident in incidents
            if not is_silent(incident["kind"])
            for test in parting(
                store.frame(
                    connection.execute(statement("paths_of_window"), {"window_start_ns": incident["window_start_ns"]})
                ),
                incident["candidates"],
                incident["odds"],
            )
        ]


def parting(paths: pl.DataFrame, candidates: Sequence[str], odds: Sequence[float]) -> Iterator[Row]:
    """Yield a test for each candidate, as `probes` returns it.

    Parameters
    ----------
    paths : `src_addr`, `dst_addr`, `switch_path`, as flows were seen to take them
    """
    possible = _possible(paths)
    crossed = [_crosses(name).alias(f"candidate_{number}") for number, name in enumerate(candidates)]
    names = [f"candidate_{number}" for number in range(len(candidates))]
    alone = possible.with_columns(crossed).filter(pl.sum_horizontal(names) == 1)
    for name, candidate, share in zip(names, candidates, odds, strict=True):
        fits = alone.filter(pl.col(name)).select("src_addr", "dst_addr", "switch_path").head(1)
        nothing = dict.fromkeys(("src_addr", "dst_addr", "switch_path"))
        yield {"candidate": candidate, "odds": share} | (fits.row(0, named=True) if fits.height else nothing)


def text(tests: Sequence[Row]) -> str:
    """Return the tests for people, a line each."""
    if not tests:
        return (
            "No open incident has several devices as candidates that a test can tell apart: there is nothing to probe."
        )
    return "\n".join(
        f"{one['incident_id']}  {one['candidate']} ({one['odds']:.0%}): "
        + (
            "no known path has this candidate alone; compare the counters of its ports."
            if one["src_addr"] is None
            else f"bandwidth test from {one['src_addr']} to {one['dst_addr']} across {', '.join(one['switch_path'])}."
        )
        for one in tests
    )


def _possible(paths: pl.DataFrame) -> pl.DataFrame:
    """Return paths between one NIC of each leaf and one of another, over each spine that both are seen to reach.

    A path within a leaf joins two of its NICs. The NICs come last in their leaves, so that few tests touch the first.
    """
    path = pl.col("switch_path")
    ends = [(path.list.first(), "src_addr"), (path.list.last(), "dst_addr")]
    homes = pl.concat([paths.select(leaf=leaf, addr=addr) for leaf, addr in ends]).unique().sort("leaf", "addr")
    of_leaf = homes.group_by("leaf", maintain_order=True).agg(first=pl.col("addr").first(), last=pl.col("addr").last())
    up = (
        paths.filter(path.list.len() == len(("leaf", "spine", "leaf")))
        .select(spine=path.list.get(1, null_on_oob=True), leaf=pl.concat_list(path.list.first(), path.list.last()))
        .explode("leaf")
        .unique()
        .join(of_leaf, on="leaf")
    )
    over = up.join(up, on="spine", suffix="_to").filter(pl.col("leaf") < pl.col("leaf_to"))
    inside = of_leaf.filter(pl.col("first") != pl.col("last"))
    return pl.concat(
        [
            inside.select(src_addr="first", dst_addr="last", switch_path=pl.concat_list("leaf")),
            over.sort("leaf", "leaf_to", "spine").select(
                src_addr="first", dst_addr="last_to", switch_path=pl.concat_list("leaf", "spine", "leaf_to")
            ),
            paths.select("src_addr", "dst_addr", "switch_path"),
        ]
    )


def _crosses(candidate: str) -> pl.Expr:
    """Return whether a path has a candidate: a link, a switch or a NIC."""
    if LINK in candidate:
        one, other = candidate.split(LINK)
        between = pl.concat_str(pl.lit(" "), pl.col("switch_path").list.join(" "), pl.lit(" "))
        return pl.any_horizontal(
            between.str.contains(f" {a} {b} ", literal=True) for a, b in ((one, other), (other, one))
        )
    named = pl.lit(candidate)
    return (
        pl.col("switch_path").list.contains(candidate) | (pl.col("src_addr") == named) | (pl.col("dst_addr") == named)
    )
