"""Drafts: found only once all is there, only for what they are of, and not for ever."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import polars as pl
import pytest
from llmprism_tasks.deriving import Derived
from llmprism_tasks.drafts import Drafts

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.plan import stage_named
from llmprism_tasks.contract.windows import Window

WINDOW = Window(60_000_000_000, 60_000_000_000)
STEPS, LAYOUT = stage_named("step_division"), stage_named("parallelism")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"llmprism-{os.getuid()}"


def made(*jobs: str, elapsed_ns: int = 7) -> Derived:
    """Return what step division makes of jobs: a row each."""
    row = {"window_start_ns": WINDOW.start_ns, "src_addr": "a", "dst_addr": "b", "step_index": 0}
    rows = pl.DataFrame([row | {"job_id": job} for job in jobs]).with_columns(pl.col("src_addr").cast(pl.Categorical))
    return Derived({STEPS.name: {"pair_steps": rows}}, {STEPS.name: elapsed_ns})


def kept(*derived: Derived, made_of: str = "flows", warehouse: str = "w") -> Drafts:
    all_of_it = Drafts(warehouse, WINDOW)
    all_of_it.begin()
    for one in derived:
        all_of_it.take(one, ())
    all_of_it.end(made_of)
    return all_of_it


def jobs(found: Derived | None) -> list[str] | None:
    return None if found is None else found.tables["pair_steps"]["job_id"].to_list()


def test_pieces_come_back_as_one_with_the_time_they_took_in_all() -> None:
    found = kept(made("j", "k"), made("l", elapsed_ns=5)).of(STEPS, "flows")
    assert found is not None
    assert jobs(found) == ["j", "k", "l"]
    assert found.stage_ns == {STEPS.name: 12}
    assert found.tables["pair_steps"].schema["src_addr"] == pl.Categorical


def test_rows_of_none_are_a_draft_and_no_rows_are_none() -> None:
    drafted = kept(Derived({STEPS.name: {"pair_steps": frames.empty("pair_steps")}}, {STEPS.name: 1}))
    assert jobs(drafted.of(STEPS, "flows")) == []
    assert drafted.of(LAYOUT, "flows") is None


def test_what_was_made_of_anything_else_is_none() -> None:
    drafted = kept(made("j"), made_of="flows")
    assert drafted.of(STEPS, "other flows") is None
    assert Drafts("another warehouse", WINDOW).of(STEPS, "flows") is None
    assert Drafts("w", WINDOW.shifted(1)).of(STEPS, "flows") is None
    assert jobs(Drafts("w", WINDOW).of(STEPS, "flows")) == ["j"]


def test_nothing_is_found_before_all_is_there() -> None:
    kept(made("j"))
    again = Drafts("w", WINDOW)
    again.begin()
    again.take(made("k"), ())
    assert Drafts("w", WINDOW).of(STEPS, "flows") is None
    again.end("flows")
    assert jobs(Drafts("w", WINDOW).of(STEPS, "flows")) == ["k"]


def test_two_that_make_the_same_at_a_time_do_not_mix(place: Path) -> None:
    one, other = Drafts("w", WINDOW), Drafts("w", WINDOW)
    one.begin()
    one.take(made("j"), ())
    other.begin()
    other.take(made("j"), ())
    one.take(made("k"), ())
    one.end("flows")
    other.take(made("k"), ())
    other.end("flows")
    assert jobs(one.of(STEPS, "flows")) == ["j", "k"]
    one.forget()
    assert list(place.iterdir()) == []


def test_where_nothing_can_be_written_it_says_what_to_do(place: Path) -> None:
    drafts = Drafts("w", WINDOW)
    drafts.begin()
    shutil.rmtree(place)
    with pytest.raises(TransientError, match="set TMPDIR to another folder"):
        drafts.take(made("j"), ())
    with pytest.raises(TransientError, match="set TMPDIR to another folder"):
        drafts.end("flows")


@pytest.mark.parametrize("spoilt", [None, b"", b"not an Arrow file"])
def test_a_piece_that_is_gone_or_spoilt_is_no_draft(place: Path, spoilt: bytes | None) -> None:
    drafted = kept(made("j"), made("k"))
    piece = next(place.glob("*/*.000001"))
    if spoilt is None:
        piece.unlink()
    else:
        piece.write_bytes(spoilt)
    assert drafted.of(STEPS, "flows") is None


def test_a_spoilt_note_is_no_draft(place: Path) -> None:
    drafted = kept(made("j"))
    next(place.glob("*/*.json")).write_text("")
    assert drafted.of(STEPS, "flows") is None
