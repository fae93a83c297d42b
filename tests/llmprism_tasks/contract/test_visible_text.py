"""Visible text: which characters are taken out of names, and how they are shown."""

from __future__ import annotations

import json
import re
import unicodedata

import polars as pl

from llmprism_tasks.contract.visible_text import STEERING, shown

ALL = [chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000]


def test_all_controls_and_marks_of_direction_are_found_and_nothing_that_is_seen() -> None:
    found = pl.Series(ALL).filter(pl.Series(ALL).str.contains(STEERING)).to_list()
    controls = {sign for sign in ALL if unicodedata.category(sign) == "Cc"}
    marks = {
        sign for sign in ALL if re.search("RIGHT-TO-LEFT|LEFT-TO-RIGHT|ARABIC LETTER MARK", unicodedata.name(sign, ""))
    }
    marks = {sign for sign in marks if unicodedata.category(sign) == "Cf"}
    assert controls | marks <= set(found)
    assert all(unicodedata.category(sign) in {"Cc", "Cf", "Zl", "Zp"} for sign in found)


def test_what_steers_is_written_out_but_for_line_breaks_and_tabs() -> None:
    assert shown("a\x1b[31mb\u202ec\x9bd\x7f\n\te") == "a\\u001b[31mb\\u202ec\\u009bd\\u007f\n\te"
    assert shown({"a\x1b": ["b\x1b", 1, None, ("c\x1b",)]}) == {"a\\u001b": ["b\\u001b", 1, None, ("c\\u001b",)]}
    name = "a\x1b\x7f\u202e"
    assert json.loads(shown(json.dumps([name], ensure_ascii=False))) == [name]
