"""What moves next to nothing beside what its NICs move both ways."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB

from llmprism_tasks.stages.traffic.both_ways import acknowledging_pairs

RING = ["ab", "bc", "cd", "de", "ef", "fg", "gh", "ha"]


@pytest.mark.parametrize(("back", "acknowledge"), [(0.0019, True), (0.0021, False)])
def test_what_acknowledges_a_ring_takes_no_part_in_it(back: float, acknowledge: bool) -> None:
    """Acknowledgements are less than a thousandth of what is sent, the smallest activations a hundredth."""
    sizes = dict.fromkeys(RING, 100.0 * MB) | {one[::-1]: back * 100 * MB for one in RING}
    pairs = pl.DataFrame([(*one, size) for one, size in sizes.items()], ["src_addr", "dst_addr", "usual"], orient="row")
    found = {"".join(pair) for pair in acknowledging_pairs(pairs).rows()}
    assert found == ({one[::-1] for one in RING} if acknowledge else set())
