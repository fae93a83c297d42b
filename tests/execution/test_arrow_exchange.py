"""Frames on their way to another process and back: they come as they went, in one piece, and leave no file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from llmprism_tasks import passing
from llmprism_tasks.contract.errors import TransientError

TEXTS = pl.Series("text", ["a", None, "b", "a"])
ROWS = pl.DataFrame(
    {
        "text": TEXTS,
        "category": TEXTS.cast(pl.Categorical),
        "path": [["leaf-1", "spine-2"], [], None, ["leaf-1"]],
        "time": [2**62, 0, None, -1],
        "share": [0.5, float("inf"), None, -0.0],
    }
)


@pytest.mark.parametrize("rows", [ROWS, ROWS.clear(), pl.concat([ROWS[:3], ROWS[1:]], rechunk=False)])
def test_a_frame_comes_as_it_went(rows: pl.DataFrame, tmp_path: Path) -> None:
    passing.put(rows, tmp_path, "rows")
    came = passing.taken(tmp_path, "rows")
    assert came.schema == rows.schema
    assert came.equals(rows)
    assert set(came.n_chunks("all")) == {1}
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_room_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="set TMPDIR to another folder"):
        passing.put(ROWS, tmp_path / "nowhere", "rows")
