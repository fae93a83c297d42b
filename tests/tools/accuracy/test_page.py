"""The page: what was measured stands in it, what missed its bound is marked, what was not measured is said."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from results import NOTHING, result

from accuracy.__main__ import main
from accuracy.families.registry import FAMILIES, FIRST_PUBLISHED_CAPTURE, FIRST_PUBLISHED_SEED, SHARED
from accuracy.pages import accuracy_page as page
from accuracy.pages.curves_svg import LINES, calibration, curves
from accuracy.pages.known_gaps import confidence_shares, confidence_table, gaps, sure_and_right
from accuracy.pages.markdown_tables import families_table, shown
from accuracy.pages.mistakes import wrongs
from accuracy.pages.run_totals import tally
from accuracy.runs import results
from accuracy.runs.results import keep, keep_named, kept
from accuracy.runs.sources import Source, family_sources


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")


def test_a_miss_is_marked_and_a_figure_of_the_published_method_is_not() -> None:
    bad = tally([result(exact=2)])
    text = families_table({"twins": {"joint": bad, "published": bad}}, {"twins": SHARED})
    joint, published = text.splitlines()[2:]
    assert "2 of 4 ✗" in joint
    assert "2 of 4 |" in published


def test_columns_that_say_nothing_are_left_out() -> None:
    without, with_faults = (
        families_table({"twins": {"joint": tally([one])}}, {}).splitlines()[0]
        for one in (result(), result(faults=1, faults_named=1))
    )
    assert "EP pairs" not in without
    assert "faults named" not in without
    assert "faults named" in with_faults


def test_what_was_not_measured_is_said() -> None:
    text = families_table({"twins": {"joint": None}}, {"twins": SHARED})
    assert "not measured" in text
    assert len({line.count("|") for line in text.splitlines()}) == 1


@pytest.mark.parametrize(
    ("figure", "value", "text"),
    [
        ("exact", 1.0, "1"),
        ("exact", 0.99999, "0.9999"),
        ("dp_recall", 0.5, "0.5"),
        ("error_p95", 0.003, "0.300 %"),
        ("error_p95", 0.25, "25.0 %"),
        ("steps_extra", 12, "12"),
        ("pp_recall", None, "-"),
    ],
)
def test_figures_are_shown_without_flattering(figure: str, value: float | None, text: str) -> None:
    assert shown(figure, value) == text


def test_gaps_name_what_was_missed_and_where_nothing_was() -> None:
    half = NOTHING | {"found": 10, "right": 10, "true": 20, "met": 10}
    confusions = [{"job": "chat", "true": "dp", "kind": "other", "pairs": 10}]
    bands = [{"job": "chat", "of": "jobs", "band": "0.99 to 1", "right": 3, "wrong": 1}]
    bad = result(pairs={"dp": half}, confusions=confusions, bands=bands, steps_found=40)
    text = gaps({"twins": [bad], "plain": [result()], "experts": []}, {"twins": SHARED})
    twins, whole = text.splitlines()
    for words in ("DP pairs, precision 1.000 and recall 0.500", "10 dp called other", "10 of 50 steps", "1 windows of"):
        assert words in twins
    assert whole.endswith("plain.")


def test_confidence_is_counted_over_all_runs() -> None:
    bands = [{"job": "chat", "of": "jobs", "band": "0.5 to 0.75", "right": 1, "wrong": 3}]
    assert confidence_table([result(bands=bands)] * 2).splitlines()[2] == "| 0.5 to 0.75 | 8 | 0.250 | 0 | - |"


def test_a_picture_has_a_line_for_each_figure_and_method_and_leaves_out_what_is_not_known() -> None:
    values = {figure: [1.0, None, 0.5] for figure in LINES}
    picture = ElementTree.fromstring(curves("loss <%>", ["0", "1", "2"], {"joint": values, "published": values}))
    name = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{name}polyline")) == 2 * len(LINES)
    assert len(picture.findall(f"{name}circle")) == 2 * 2 * len(LINES)


def test_results_are_kept_by_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    source, other = family_sources(["twins"], [0, 1])
    keep(source, "joint", result() | {"version": "old"})
    assert kept(source, "joint") is None
    assert kept(source, "joint", of_any_version=True) is not None
    assert kept(source, "published", of_any_version=True) is None
    assert kept(other, "joint", of_any_version=True) is None
    monkeypatch.setattr(results, "version", lambda: "old")
    assert kept(source, "joint") is not None


def test_a_family_that_is_drawn_otherwise_is_measured_again() -> None:
    (source,) = family_sources(["twins"], [0])
    keep(source, "joint", result())
    changed = Source(source.group, source.label, {**(source.content or {}), "loop_minutes": 9}, source.minutes, 0)
    assert kept(changed, "joint", of_any_version=True) is None


def test_the_page_holds_all_families_and_says_what_is_missing(tmp_path: Path) -> None:
    for seed in (FIRST_PUBLISHED_SEED, FIRST_PUBLISHED_SEED + 1):
        (source,) = family_sources(["twins"], [seed])
        keep(source, "joint", result(exact=3))
    out = tmp_path / "docs" / "accuracy.md"
    out.parent.mkdir()
    files = page.write_page(out, None)
    text = out.read_text()
    assert all(f"| {name} |" in text for name in FAMILIES)
    assert "| twins | joint | 6 of 8 ✗ |" in text
    assert "not measured" in text
    assert "other code than the present" in text
    assert all(file.exists() for file in files)
    assert all(f"images/{file.name}" in text for file in files[1:])


def test_the_command_says_what_is_wrong_and_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = family_sources(["twins"], [0, 1])
    keep(first, "joint", result(exact=3) | {"version": results.version()})
    assert main(["wrong", "--families", "twins", "--seeds", "0", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "twins 0, joint, chat: members exact in 3 of 4 windows",
        "twins 1, joint, all: not measured",
    ]


def test_only_captures_that_nothing_was_built_with_are_on_the_page(tmp_path: Path) -> None:
    first = FIRST_PUBLISHED_CAPTURE
    for name in (f"{first - 1}", f"{first}", f"{first}, coarse", f"{first + 1}", "limited_nic"):
        judged = result(exact=3) | {"floor": {"median": 0.001, "p95": 0.02}, "version": "old"}
        keep_named(f"capture-{name}", judged)
    out = tmp_path / "accuracy.md"
    page.write_page(out, None)
    rows = out.read_text().partition("## Real training")[2].partition("## Families")[0].splitlines()
    captures = [row.split(" |")[0].removeprefix("| ") for row in rows if "joint" in row]
    assert captures == [f"{first}", f"{first}, coarse", f"{first + 1}", "all", "all, coarse"]
    assert f"| {first} | 0.100 % | 2.0 % |" in rows


def test_a_picture_of_confidence_has_a_point_for_each_band_of_rows() -> None:
    bands = [
        {"job": "chat", "of": "jobs", "band": "0.9 to 0.99", "right": 3, "wrong": 1},
        {"job": "chat", "of": "jobs", "band": "0 to 0.5", "right": 0, "wrong": 2},
        {"job": "chat", "of": "pairs", "band": "0.99 to 1", "right": 0, "wrong": 0},
    ]
    runs = [result(bands=bands)]
    shares = {of: confidence_shares(runs, of) for of in ("jobs", "pairs")}
    assert shares == {"jobs": [(0.25, 0.0, 2), (pytest.approx(0.945), 0.75, 4)], "pairs": []}
    assert (sure_and_right(runs, "jobs"), sure_and_right(runs, "pairs")) == (0.75, None)
    picture = ElementTree.fromstring(calibration(shares))
    assert len(picture.findall("{http://www.w3.org/2000/svg}circle")) == 2


def test_what_is_wrong_is_said_by_job() -> None:
    degrees = [{"job": "chat", "degree": "tp", "right": 3, "wrong": 1, "unknown": 0}]
    said = dict(wrongs(result(exact=3, steps_extra=2, degrees=degrees)))
    assert said == {"chat": "members exact in 3 of 4 windows; 2 steps found that are none; tp 1 wrong of 4 windows"}
    assert dict(wrongs(result())) == {}
