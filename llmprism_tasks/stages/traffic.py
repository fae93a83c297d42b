"""Which flows matter to a job: those between GPU NICs, bulk data apart from control messages.

All stages look at flows pair by pair, in order of time. So they are brought into this order once, and numbered by their
pair: to sort, group or join them again by two addresses would cost more than all that is worked out of them.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.methods import ordering
from llmprism_tasks.settings import TrafficSettings
from llmprism_tasks.stages.remembered import remembered

PAIR = ["src_addr", "dst_addr"]
NEEDED = ["window_start_ns", "flow_start_ns", "flow_end_ns", *PAIR, "bytes"]
"""Columns of flows that the stages look at; the others only cost memory when rows are sorted and joined."""


@remembered
def numbered(flows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Number the pairs of flows.

    Returns
    -------
    flows : `NEEDED` (and `switch_path`, if there), with `pair`, ordered by it, within it by start, end and bytes
    pairs : `pair`, `src_addr`, `dst_addr`, in this order
    """
    kept = [*NEEDED, *(["switch_path"] if "switch_path" in flows.columns else [])]
    flows = flows.select(kept)
    if not flows["flow_start_ns"].is_sorted():
        flows = flows.sort("flow_start_ns", maintain_order=True)
    coded = flows.select(*PAIR, code=_code())
    pairs = coded.unique("code").sort(PAIR).with_row_index("pair").with_columns(pl.col("pair").cast(pl.Int32))
    number = coded.select("code").join(pairs.select("code", "pair"), on="code", maintain_order="left")["pair"]
    times = (flows[column].to_numpy() for column in ("flow_start_ns", "flow_end_ns", "bytes"))
    order = ordering.grouped(number.to_numpy(), pairs.height, *times)
    return flows.with_columns(number)[order], pairs.select("pair", *PAIR)


def between_gpus(flows: pl.DataFrame, nics: pl.DataFrame, *, paths: bool = False) -> pl.DataFrame:
    """Keep the flows whose both ends are known NICs.

    Parameters
    ----------
    flows : the flows table's columns, or what this function returned
    nics : `addr` and what is to be known of it: columns of the topology or of job_members
    paths : whether `switch_path` is needed

    Returns
    -------
    flows with the columns `NEEDED` and `pair`, in the order of `numbered`, and with `src_…` and `dst_…` for every
    further column of `nics`
    """
    flows, pairs = _numbered(flows)
    described = [column for column in nics.columns if column != "addr"]
    for end in ("src", "dst"):
        renamed = nics.rename({"addr": f"{end}_addr"} | {column: f"{end}_{column}" for column in described})
        pairs = pairs.join(renamed, on=f"{end}_addr")
    flows = flows.select(*NEEDED, "pair", *(["switch_path"] if paths else []))
    return of_pairs(flows, pairs.drop(PAIR))


def inside_jobs(flows: pl.DataFrame, job_members: pl.DataFrame, *, paths: bool = False) -> pl.DataFrame:
    """Keep the flows between two members of one job, with its `job_id`; as `between_gpus` otherwise."""
    return _inside(flows, job_members.select("addr", "job_id"), paths=paths)


@remembered
def _inside(flows: pl.DataFrame, jobs: pl.DataFrame, *, paths: bool) -> pl.DataFrame:
    flows, pairs = _numbered(flows)
    for end in PAIR:
        pairs = pairs.join(jobs.rename({"addr": end, "job_id": f"{end}_job"}), on=end)
    same = pairs.filter(pl.col(f"{PAIR[0]}_job") == pl.col(f"{PAIR[1]}_job"))
    flows = flows.select(*NEEDED, "pair", *(["switch_path"] if paths else []))
    return of_pairs(flows, same.select("pair", job_id=f"{PAIR[0]}_job"))


def of_pairs(flows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the flows of pairs, in their order, with what is known of each pair.

    Parameters
    ----------
    flows : with `pair`
    pairs : `pair`, once each, and columns to add
    """
    return flows.join(pairs, on="pair", maintain_order="left")


@remembered
def bulk(flows: pl.DataFrame, settings: TrafficSettings) -> pl.DataFrame:
    """Keep the flows that carry data: handshakes, scalars and "ready" messages are smaller than any tensor that
    counts."""
    return flows.filter(pl.col("bytes") > settings.control_bytes)


def by_pair(flows: pl.DataFrame, *within: str) -> pl.DataFrame:
    """Sort flows so that those of a pair lie together, within it by columns of numbers."""
    return flows.sort("pair" if "pair" in flows.columns else _code(), *within)


def by_endpoint(flows: pl.DataFrame) -> pl.DataFrame:
    """Return every flow twice, once for each of its ends, as `addr` (with the other end as `peer`)."""
    return pl.concat(
        [
            flows.with_columns(addr=pl.col(own), peer=pl.col(other), sends=pl.lit(sends))
            for own, other, sends in (("src_addr", "dst_addr", True), ("dst_addr", "src_addr", False))
        ]
    )


def _numbered(flows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    if "pair" not in flows.columns:
        return numbered(flows)
    return flows, flows.select("pair", *PAIR).unique("pair").sort("pair")


def _code() -> pl.Expr:
    """A number for each pair, in no particular order: to sort text would cost ten times as much."""
    source, target = (pl.col(end).cast(pl.Categorical).to_physical().cast(pl.Int64) for end in PAIR)
    return source * 2**32 + target
