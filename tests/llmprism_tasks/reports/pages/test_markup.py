"""Words and numbers of pages: nothing that users' data hold can hide, move or end what is around it."""

from __future__ import annotations

import json

import pytest

from llmprism_tasks.reports.pages import markup


@pytest.mark.parametrize("bad", ["\x00", "\x1b", "\n", "\u202e", "\u2028", "\ufeff", "\x7f"])
def test_characters_that_hide_or_move_text_are_replaced(bad: str) -> None:
    assert markup.shown(f"node{bad}7") == "node\ufffd7"


def test_a_text_is_shown_whole_up_to_the_limit_and_cut_beyond_it() -> None:
    assert markup.shown("x" * markup.MOST_CHARACTERS) == "x" * markup.MOST_CHARACTERS
    assert markup.shown("x" * (markup.MOST_CHARACTERS + 1)) == "x" * (markup.MOST_CHARACTERS - 1) + "…"


def test_json_in_a_page_cannot_end_its_element() -> None:
    value = {"name": "</script><script>alert(1)</script>&\u2028"}
    text = markup.data(value)
    assert "<" not in text
    assert "&" not in text
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2.0 h"), (172_800, "2.0 d"), (2e7, "231 d")],
)
def test_a_length_of_time_has_the_largest_unit_that_fits(seconds: float, expected: str) -> None:
    assert markup.ago(seconds) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(None, ""), (float("nan"), ""), (999, "999 B"), (1_000, "1 kB"), (4.25e6, "4.25 MB"), (3e13, "30 TB")],
)
def test_an_amount_has_a_decimal_prefix(number: float | None, expected: str) -> None:
    assert markup.amount(number, "B") == expected


def test_a_sparkline_rises_leaves_gaps_and_is_flat_below_two_percent() -> None:
    rising = [point.split(",") for point in markup.sparkline([1.0, None, 2.0]).split()]
    assert [float(x) for x, _ in rising] == [0.0, 120.0]
    assert float(rising[0][1]) > float(rising[1][1])  # a larger value is higher up
    flat, moved = markup.sparkline([1.0, 1.019]), markup.sparkline([1.0, 1.021])
    assert {point.split(",")[1] for point in flat.split()} == {"12.0"}
    assert len({point.split(",")[1] for point in moved.split()}) == 2
    assert markup.sparkline([None, None]) == ""


def test_a_page_for_a_file_holds_its_scripts_and_allows_no_others() -> None:
    values = {
        "found": "nothing",
        "expected": "something",
        "todo": "Look.",
        "title": "Test",
        "here": "message",
        "asked": None,
    }
    page = markup.render("message.html", scripts=["charts.js"], alone=True, **values)
    assert markup.asset("charts.js") in page
    assert "script-src 'sha256-" in page.replace("&#39;", "'")
    assert "src=" not in page.replace("script-src", "")
    assert 'rel="stylesheet"' not in page
