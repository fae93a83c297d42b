"""The rows that a warehouse answers with: their digests, copies of them as Parquet, and what differs from such a copy.

Tables are read by name with plain SQL, as any user of the warehouse would, so that this holds however the package that
wrote them is arranged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import duckdb

ANSWERS: Mapping[str, str] = {
    "windows": """SELECT COLUMNS(name -> name NOT IN ('stage_ns', 'software_version', 'reason', 'flows_digest'))
        FROM windows""",
    "reasons": "SELECT window_start_ns, reason FROM windows",
    "flows": "FROM flows",
    "flows_quarantine": "FROM flows_quarantine",
    "jobs": "FROM jobs",
    "job_members": "FROM job_members",
    "pair_steps": "FROM pair_steps",
    "pairs": "FROM pairs",
    "steps": "FROM steps",
    "timeline": "FROM timeline",
    "step_breakdown": "FROM step_breakdown",
    "diagnoses": "SELECT * EXCLUDE (explanation, evidence_sql) FROM diagnoses",
    "explanations": """SELECT window_start_ns, job_id, kind, subject_type, subject, explanation FROM diagnoses""",
    "evidence": """SELECT window_start_ns, job_id, kind, subject_type, subject, evidence_sql FROM diagnoses""",
    "validation_results": "SELECT * EXCLUDE (observed) FROM validation_results",
}
"""What is compared, by name. Run times and versions differ from run to run and are in none of it, and the digest of
flows says no more than `flows`; texts, which may be worded anew without another answer, and results of expectations
have a name of their own, to be left out by it."""

DIGITS = 16
"""Hexadecimal digits kept of a SHA-256: 64 bits tell any two results apart that will ever meet here."""

SHOWN = 10
"""Rows shown of a difference."""

Digests: TypeAlias = dict[str, dict[int, str]]
"""Digest by answer and window's start in nanoseconds; a window without rows has none."""


def digests_of(warehouse: Path) -> Digests:
    """Return the digests of all answers of a warehouse, whatever the order of its rows."""
    with _reading(warehouse) as connection:
        return {answer: _digests(connection, query) for answer, query in ANSWERS.items()}


def digest_of_files(files: Iterable[Path]) -> str:
    """Return a digest of the rows of Parquet files and the bytes of others, by their names."""
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute("CREATE TABLE held (file VARCHAR, digest VARCHAR)")
        for file in sorted(files):
            content = f"FROM read_parquet('{file}')" if file.suffix == ".parquet" else f"FROM read_blob('{file}')"
            bare = content if file.suffix == ".parquet" else f"SELECT content {content}"
            rows = f"SELECT 0 AS window_start_ns, * FROM ({bare})"
            connection.execute("INSERT INTO held VALUES (?, ?)", [file.name, str(_digests(connection, rows).get(0))])
        return _digests(connection, "SELECT 0 AS window_start_ns, * FROM held")[0]


@contextmanager
def _reading(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection


def _digests(connection: duckdb.DuckDBPyConnection, query: str) -> dict[int, str]:
    """Return a digest of a query's rows for each `window_start_ns`: of their digests, sorted."""
    found = connection.execute(
        f"""
        SELECT window_start_ns, sha256(string_agg(digest, '' ORDER BY digest))[:{DIGITS}]
        FROM (SELECT one.window_start_ns, sha256(one::VARCHAR) AS digest FROM ({query}) AS one)
        GROUP BY window_start_ns
        ORDER BY window_start_ns
        """
    ).fetchall()
    return {int(window): str(digest) for window, digest in found}


def keep_rows(warehouse: Path, answers: Iterable[str], folder: Path) -> None:
    """Copy the rows of some answers to `<answer>.parquet` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with _reading(warehouse) as connection:
        for answer in answers:
            query = f"SELECT * FROM ({ANSWERS[answer]}) ORDER BY ALL"
            connection.execute(f"COPY ({query}) TO '{folder / answer}.parquet' (FORMAT parquet, COMPRESSION zstd)")


def differing_rows(warehouse: Path, answer: str, window: int, kept: Path, digest: str | None) -> list[str]:
    """Return the first rows that are only in the kept file (`-`) or only in the warehouse (`+`), as text.

    Parameters
    ----------
    window : start of the window in nanoseconds
    kept : what `keep_rows` wrote of the answer
    digest : of the window's rows in it; None if it should have none

    Returns
    -------
    lines; one that says why where no rows can be shown
    """
    if not kept.is_file():
        return [f"no rows to show: there is no {kept}"]
    with _reading(warehouse) as connection:
        if _digests(connection, f"FROM read_parquet('{kept}')").get(window) != digest:
            return [f"no rows to show: {kept} has those of another reference"]
        rows = {"-": f"FROM read_parquet('{kept}')", "+": ANSWERS[answer]}
        texts = {
            sign: f"SELECT one::VARCHAR AS row FROM ({query}) AS one WHERE one.window_start_ns = {window}"
            for sign, query in rows.items()
        }
        found = connection.execute(
            f"""
            WITH old AS ({texts["-"]}), new AS ({texts["+"]}), differing AS (
                (SELECT row, '-' AS sign FROM (FROM old EXCEPT ALL FROM new))
                UNION ALL (SELECT row, '+' AS sign FROM (FROM new EXCEPT ALL FROM old))
            )
            SELECT sign, row, count(*) OVER () FROM differing ORDER BY row, sign DESC LIMIT {SHOWN}
            """
        ).fetchall()
    lines = [f"{sign} {row}" for sign, row, _ in found]
    more = found[0][2] - len(found) if found else 0
    return [*lines, f"and {more} more"] if more else lines
