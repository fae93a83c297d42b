"""Answers: their digests tell rows apart and nothing else, and of a difference the rows are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from accuracy.equality import reference
from accuracy.equality.answers import ANSWERS, SHOWN, differing_rows, digest_of_files, digests_of, keep_rows
from accuracy.equality.reference import INPUTS, WHOLE
from llmprism_tasks.contract.tables import TABLES

FIRST, SECOND = 60, 120
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Make a warehouse with two windows, a job in each, and steps; then run statements in it."""

    def make(name: str, *statements: str) -> Path:
        file = tmp_path / f"{name}.duckdb"
        with duckdb.connect(str(file)) as connection:
            for table in TABLES:
                columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
                connection.execute(f"CREATE TABLE {table.name} ({columns})")
            for window in (FIRST, SECOND):
                connection.execute(
                    "INSERT INTO windows (window_start_ns, status, stage_ns) VALUES (?, 'done', ?)", [window, name]
                )
                connection.execute("INSERT INTO jobs (window_start_ns, job_id) VALUES (?, 'j0')", [window])
            steps = f"SELECT {SECOND}, 'j0', NULL, range, range, range + 1 FROM range(20) ORDER BY random()"
            connection.execute(f"INSERT INTO steps {steps}")
            for statement in statements:
                connection.execute(statement)
        return file

    return make


def test_the_order_of_rows_run_times_and_versions_are_no_part_of_an_answer(made: Made) -> None:
    one = made("one")
    other = made("other", "UPDATE windows SET software_version = '9', stage_ns = '{}'")
    assert reference.changed(digests_of(one), digests_of(other)) == {}


def test_what_an_expectation_observed_is_no_part_of_an_answer_but_its_count_is(made: Made) -> None:
    row = f"INSERT INTO validation_results VALUES ({FIRST}, 'jobs.known', '', 'warning', true, '%s', %d)"
    one, told_otherwise, counted_otherwise = (
        digests_of(made(f"w{at}", row % held)) for at, held in enumerate([("a", 0), ("b", 0), ("a", 1)])
    )
    assert reference.changed(one, told_otherwise) == {}
    assert reference.changed(one, counted_otherwise) == {"validation_results": [FIRST]}


def test_every_column_of_the_contract_is_in_an_answer_but_for_those_that_differ_from_run_to_run(made: Made) -> None:
    with duckdb.connect(str(made("one")), read_only=True) as connection:
        compared = {
            (
                answer.replace("reasons", "windows")
                .replace("explanations", "diagnoses")
                .replace("evidence", "diagnoses"),
                name,
            )
            for answer, query in ANSWERS.items()
            for name, *_ in connection.execute(query).description
        }
    of_runs = ("notifications", "minutes", "mutes", "flow_files", "flow_file_windows")
    told = {(table.name, column.name) for table in TABLES for column in table.columns if table.name not in of_runs}
    assert told - compared == {
        ("windows", "stage_ns"),
        ("windows", "software_version"),
        ("windows", "flows_digest"),
        ("validation_results", "observed"),
    }


def test_a_changed_row_is_found_and_shown_beside_the_one_before(made: Made, tmp_path: Path) -> None:
    before, after = made("before"), made("after", f"UPDATE jobs SET kind = 'other' WHERE window_start_ns = {SECOND}")
    expected = digests_of(before)
    assert reference.changed(expected, digests_of(after)) == {"jobs": [SECOND]}
    keep_rows(before, ["jobs"], tmp_path / "kept")
    lines = differing_rows(after, "jobs", SECOND, tmp_path / "kept" / "jobs.parquet", expected["jobs"][SECOND])
    assert [line[0] for line in sorted(lines)] == ["+", "-"]
    assert "'kind': other" in sorted(lines)[0]
    assert "'kind': NULL" in sorted(lines)[1]


def test_only_the_first_rows_are_shown_and_how_many_more_there_are(made: Made, tmp_path: Path) -> None:
    before, after = made("before"), made("after", "DELETE FROM steps")
    keep_rows(before, ["steps"], tmp_path)
    lines = differing_rows(after, "steps", SECOND, tmp_path / "steps.parquet", digests_of(before)["steps"][SECOND])
    assert len(lines) == SHOWN + 1
    assert lines[-1] == f"and {20 - SHOWN} more"


@pytest.mark.parametrize("kept", ["none", "other"])
def test_rows_that_are_not_those_of_the_reference_are_not_shown(made: Made, tmp_path: Path, kept: str) -> None:
    after = made("after", "DELETE FROM steps")
    keep_rows(made("other", "DELETE FROM steps WHERE step_index > 2"), ["steps"], tmp_path / "other")
    digest = digests_of(made("before"))["steps"][SECOND]
    (line,) = differing_rows(after, "steps", SECOND, tmp_path / kept / "steps.parquet", digest)
    assert line.startswith("no rows to show")


def test_a_missing_window_and_one_too_many_are_found(made: Made) -> None:
    both = digests_of(made("both"))
    one = digests_of(made("one", f"DELETE FROM windows WHERE window_start_ns = {FIRST}"))
    assert reference.changed(both, one) == reference.changed(one, both) == {"windows": [FIRST], "reasons": [FIRST]}


def test_a_reference_gives_back_every_way_and_keeps_only_what_differs(made: Made, tmp_path: Path) -> None:
    whole = digests_of(made("whole"))
    parts = digests_of(made("parts", f"DELETE FROM jobs WHERE window_start_ns = {FIRST}"))
    reference.write(tmp_path / "tables.json", {"one": reference.entry_of("d", {WHOLE: whole, "parts": parts})})
    entry = reference.read(tmp_path / "tables.json")["one"]
    assert entry[INPUTS] == {"windows": f"{FIRST} {SECOND}", "digest": "d"}
    assert list(entry["parts"]) == ["jobs"]
    assert reference.digests(entry, WHOLE) == whole
    assert reference.digests(entry, "parts") == parts


def test_other_records_have_another_digest(tmp_path: Path) -> None:
    flows, topology = tmp_path / "flows.parquet", tmp_path / "topology.csv"
    topology.write_text("addr,host\n10.0.0.1,a\n")
    found = set()
    for rows in ("range(3)", "range(3) ORDER BY range DESC", "range(4)"):
        duckdb.sql(f"COPY (FROM {rows}) TO '{flows}' (FORMAT parquet)")
        found.add(digest_of_files([flows, topology]))
    assert len(found) == 2
    topology.write_text("addr,host\n10.0.0.1,b\n")
    assert digest_of_files([topology, flows]) not in found
