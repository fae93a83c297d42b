"""Flows whose starts ascend are brought into the stored order by sorting those alone that start together."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.contract import frames
from llmprism_tasks.warehouse.storage import flow_order

NUMBER = st.one_of(st.none(), st.integers(0, 2))
ROW = st.fixed_dictionaries(
    {
        "flow_start_ns": st.integers(0, 5),
        "flow_end_ns": st.integers(6, 8),
        "src_addr": st.sampled_from("ab"),
        "dst_addr": st.sampled_from("cd"),
        **dict.fromkeys(("src_port", "dst_port", "protocol", "packets"), NUMBER),
        "bytes": st.integers(1, 2),
        "switch_path": st.one_of(st.none(), st.lists(st.sampled_from(["s1", "s2"]), max_size=2)),
    }
)


@given(st.lists(ROW, max_size=40), st.integers(1, 9))
def test_it_is_the_order_of_all_however_the_rows_are_cut_into_batches(
    rows: list[dict[str, object]], batch_rows: int
) -> None:
    every = pl.DataFrame(rows, schema=frames.empty("flows").schema).with_columns(window_start_ns=pl.lit(0, pl.Int64))
    ascending = every.sort("flow_start_ns", maintain_order=True).to_arrow()
    batches = ascending.to_batches(max_chunksize=batch_rows)
    found = pa.Table.from_batches(flow_order.ties_in_order(batches), schema=ascending.schema)
    assert pl.DataFrame(pl.from_arrow(found)).equals(flow_order.in_order(every))
