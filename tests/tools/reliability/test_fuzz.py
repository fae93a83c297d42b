"""Damaged and hostile files: each is counted to the last record, or refused in one sentence."""

from __future__ import annotations

from reliability import fuzz

CASES = 60


def test_whatever_a_file_holds_each_record_is_counted_or_the_file_is_refused_in_a_sentence() -> None:
    said: list[str] = []
    found = fuzz.measure(CASES, seed=26, say=said.append)
    assert fuzz.is_sound(found), said
    assert found["counts"]["landed"] > CASES / 5
    assert found["counts"]["refused"] > CASES / 5


def test_a_damage_that_duckdb_has_no_words_for_is_refused_in_a_sentence() -> None:
    """Found by `python -m reliability fuzz`: the message ended with its colon, and its first line was looked for."""
    said: list[str] = []
    found = fuzz.measure(1, seed=0, first=79, say=said.append)
    assert found["counts"] == {"landed": 0, "refused": 1, "miscounted": 0, "untyped": 0}, said


def test_a_name_of_a_column_that_is_no_text_is_refused_in_a_sentence() -> None:
    """Found by `python -m reliability fuzz`: a damaged Parquet file whose schema was not UTF-8."""
    said: list[str] = []
    found = fuzz.measure(1, seed=16, first=437, say=said.append)
    assert found["counts"] == {"landed": 0, "refused": 1, "miscounted": 0, "untyped": 0}, said
