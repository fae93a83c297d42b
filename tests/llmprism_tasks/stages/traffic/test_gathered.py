"""Rows gathered are those at the places, in their order, of any type."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from llmprism_tasks.stages.traffic.gathered import gathered

FRAME = pl.DataFrame({"addr": ["b", "a", None], "start_ns": [3, None, 1]}).with_columns(
    code=pl.col("addr").cast(pl.Enum(["a", "b"])), kind=pl.col("addr").cast(pl.Categorical)
)


@pytest.mark.parametrize("places", [[], [2], [0, 0, 2, 1, 0]])
def test_rows_are_as_polars_gathers_them(places: list[int]) -> None:
    assert gathered(FRAME, np.array(places, np.int32)).equals(FRAME[places])


def test_a_place_beyond_the_last_row_is_an_error() -> None:
    with pytest.raises(pl.exceptions.OutOfBoundsError):
        gathered(FRAME, np.array([3], np.int32))
