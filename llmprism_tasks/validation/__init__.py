"""A window's rows held against the suites of `expectations/`, by Great Expectations, as SQL inside the warehouse.

One suite per table, named for it, in Great Expectations' own JSON. Each expectation has a name (in `meta`), a severity
(`critical` stops the window, `warning` is recorded) and notes: why it should hold, and what to do if it does not. Where
the rows that break a critical one belong to some jobs only, these are set aside, and the window goes on without them.
`docs/validation.md` says how to run the suites without llmprism, and how to add an expectation.

Great Expectations takes seconds to import, so only the functions here do it, in the tasks that validate.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from llmprism_tasks.contract.errors import ContractError
from llmprism_tasks.contract.frames import conform, empty
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.validation import data_docs, refusals
from llmprism_tasks.validation.refusals import REFUSED, Refusals
from llmprism_tasks.validation.suites import suite
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.storage import window_row

if TYPE_CHECKING:
    from llmprism_tasks.validation.checkpoint import Outcome

logger = logging.getLogger(__name__)

CRITICAL = "critical"
BROKEN = ~pl.col("success") & (pl.col("severity") == CRITICAL)
"""Which results are of critical expectations that do not hold."""

ROWS, ROWS_LISTED = "rows", 20
"""What rows that break an expectation are called in `observed`, and how many of them are kept; Data Docs list more."""


class Observed(NamedTuple):
    """What became of a window's expectations.

    Attributes
    ----------
    results : rows of `validation_results`
    rows_by_job : expectations that do not hold, by their full names, to the number of rows of each job that break them;
        None where rows are of no job, or could not be counted
    """

    results: pl.DataFrame
    rows_by_job: Mapping[str, Mapping[str, int] | None]


def prepare() -> None:
    """Import what `validate` needs, before or while something else is done."""
    from llmprism_tasks.validation import checkpoint  # noqa: F401, PLC0415 - brings Great Expectations


def validate(warehouse: Warehouse, window: Window, tables: Sequence[str], *, docs: Path | None = None) -> pl.DataFrame:
    """Hold a window's rows of some tables against their suites, and record the results.

    The rows stay in the warehouse: each expectation is a query over views of the window. The results replace the
    window's earlier ones for these tables; those of other tables stay.

    Parameters
    ----------
    docs : folder for pages about the results, if a critical expectation does not hold or the window is the last of its
        hour; None for no pages

    Returns
    -------
    the rows of `validation_results` for these tables, whether they hold or not

    Raises
    ------
    WarehouseBusy : another process held the warehouse for too long
    """
    with warehouse.reading() as connection:  # one, so that all see the same state and wait for the lock once
        observed = _observe(connection, window, tables, docs=docs).results
    store.replace_results(warehouse, window, tables, observed)
    return observed


def validate_by_job(
    warehouse: Warehouse, window: Window, tables: Sequence[str], *, docs: Path | None = None, made: str | None = None
) -> pl.DataFrame:
    """Do what `validate` does, and set aside the jobs whose rows break critical expectations, if the rest then holds.

    Their rows leave all of these tables, in one transaction with the results, which keep what was refused, and with the
    window's `reason`, which tells it. Who was set aside stays so until a job of that id is recognised again or the
    window is landed anew, for neither this nor the stages that only read jobs would find it when done again.

    Parameters
    ----------
    tables : which have a `job_id`
    docs : as of `validate`
    made : as of `window_row.refuse_others`

    Returns
    -------
    the rows of `validation_results` for these tables; where jobs were set aside, of the rows that remain, but for the
    expectations that the jobs broke

    Raises
    ------
    ReplacedMeanwhileError : as `window_row.refuse_others`, before the check and after it
    WarehouseBusy : another process held the warehouse for too long
    """
    with warehouse.reading() as connection:
        window_row.refuse_others(connection, window, made)
        before = store.rows(connection, "validation_results", window)
        odd = store.rows(connection, "windows", window).filter(pl.col("status") != "stopped")["reason"].to_list()
        known = store.rows(connection, "jobs", window, columns=["job_id"])["job_id"]
        observed, refused = _observe_by_job(connection, window, tables, docs=docs)
    of_these = pl.col("expectation").str.split(".").list.first().is_in(list(tables))
    standing = refusals.standing(refusals.told(before.filter(of_these)), known)
    results = refusals.noted(observed, refusals.joined(standing, refused))
    store.set_aside(
        warehouse,
        window,
        list(refusals.by_job(refused)),
        tables=tables,
        results=results,
        reason=refusals.reason(odd[0] if odd else None, refusals.told(results)),
        made=made,
    )
    return results


def _observe_by_job(
    connection: Any, window: Window, tables: Sequence[str], *, docs: Path | None
) -> tuple[pl.DataFrame, Refusals]:
    """Run the suites, and again without the jobs that break critical expectations, if what breaks them is theirs alone.

    Returns
    -------
    the results of all rows and no refusals, or those of the rows that remain, which then hold, and the refusals
    """
    observed = _observe(connection, window, tables, docs=docs)
    refused = _refused(observed)
    if not refused:
        return observed.results, {}
    rest = _observe(connection, window, tables, without=list(refusals.by_job(refused))).results
    return (rest, refused) if rest.filter(BROKEN).is_empty() else (observed.results, {})


def _refused(observed: Observed) -> Refusals:
    """Return whose rows break the critical expectations that do not hold; nothing if one of them cannot be assigned."""
    refused: Refusals = {}
    for name, seen in observed.results.filter(BROKEN).select("expectation", "observed").iter_rows():
        rows = observed.rows_by_job[name]
        if rows is None:
            return {}
        refused[name] = refusals.refusal(seen, rows)
    return refused


def set_aside_warning(window: Window, results: pl.DataFrame) -> str | None:
    """Return what is to be said of the jobs that were set aside; None if none was."""
    refused = refusals.told(results)
    if not refused:
        return None
    return (
        f"window {window}, {refusals.sentence(refused)}: nothing is told of them in this window, the others stand. "
        f"{_todo(refused)}"
    )


def stopping_error(window: Window, results: pl.DataFrame, *, docs: Path | None = None) -> ContractError | None:
    """Return the error that stops a window when a critical expectation of its results does not hold, else None.

    Expectations that jobs were set aside for stop nothing.

    Parameters
    ----------
    docs : folder of the pages about these results
    """
    broken = results.filter(BROKEN & ~REFUSED)
    if broken.is_empty():
        return None
    met = [
        f"{name} ({observed if count is None else f'unexpected rows: {count}'})"
        for name, observed, count in broken.select("expectation", "observed", "unexpected_count").iter_rows()
    ]
    shown = [] if docs is None else [f"Data Docs: {data_docs.index(docs)}."]
    return ContractError(
        found=f"window {window} breaks {', '.join(met)}",
        expected="every critical expectation to hold",
        todo=" ".join([_todo(broken["expectation"]), *rows_that_break(broken, most=3), *shown]),
    )


def rows_that_break(results: pl.DataFrame, *, most: int = ROWS_LISTED) -> list[str]:
    """Return a line for each expectation that does not hold, with the first rows that break it.

    Parameters
    ----------
    results : rows of `validation_results`
    most : rows in a line
    """
    found = results.filter(~pl.col("success")).select("expectation", "observed")
    seen = ((name, json.loads(observed).get(ROWS, [])) for name, observed in found.iter_rows())
    return [f"Rows that break {name}: {', '.join(map(json.dumps, rows[:most]))}." for name, rows in seen if rows]


def _todo(expectations: Iterable[str]) -> str:
    """Return why expectations should hold and what to do if they do not."""
    return " ".join(dict.fromkeys(str(_expectation(name)["notes"]) for name in expectations))


def _expectation(full_name: str) -> dict[str, Any]:
    """Return an expectation by its table and name, joined by a dot."""
    table, _, name = full_name.partition(".")
    return next(one for one in suite(table)["expectations"] if one["meta"]["name"] == name)


def _observe(
    connection: Any,
    window: Window,
    tables: Sequence[str],
    *,
    without: Sequence[str] = (),
    docs: Path | None = None,
) -> Observed:
    """Run the suites in an open connection, on what the tables would be without some jobs.

    First it is only asked whether expectations hold. The rows that break some are then found in the tables that do not
    hold, or, where pages are to be built, in all of them.
    """
    from llmprism_tasks.validation import checkpoint  # noqa: PLC0415 - brings Great Expectations
    from llmprism_tasks.warehouse.storage import batch  # noqa: PLC0415 - brings SQLAlchemy

    if docs is not None:
        data_docs.make_room(docs)
    batch.narrow(connection, window, tables=tables, without=without)
    suites = {table: suite(table) for table in tables}
    outcomes = {one.name: one for one in checkpoint.run(connection, suites)}
    wrong = [one for one in outcomes.values() if not one.success]
    stops = any(one.severity == CRITICAL for one in wrong)
    if docs is not None and (stops or data_docs.is_hourly(window)):
        outcomes = {one.name: one for one in checkpoint.run(connection, suites, rows=True, docs=docs)}
    elif wrong:
        of_wrong = {table: one for table, one in suites.items() if any(_table(each.name) == table for each in wrong)}
        outcomes |= {one.name: one for one in checkpoint.run(connection, of_wrong, rows=True)}
    rows = [{"window_start_ns": window.start_ns} | _row(one) for one in outcomes.values()]
    results = conform(pl.DataFrame(rows, schema=empty("validation_results").schema), "validation_results")
    return Observed(results, {one.name: _rows_by_job(connection, one) for one in outcomes.values() if not one.success})


def _row(outcome: Outcome) -> dict[str, object]:
    """Return what `validation_results` keeps of one expectation's outcome."""
    rows = {ROWS: outcome.rows[:ROWS_LISTED]} if outcome.rows else {}
    return {
        "expectation": outcome.name,
        "column": outcome.column,
        "severity": outcome.severity,
        "success": outcome.success,
        "observed": json.dumps({**outcome.observed, **rows}, sort_keys=True),
        "unexpected_count": outcome.unexpected_count,
    }


def _rows_by_job(connection: Any, outcome: Outcome) -> Mapping[str, int] | None:
    """Count the rows that break an expectation by their job; None if not all are of a job."""
    if outcome.query is not None:
        rows = outcome.query.format(batch=_table(outcome.name))
        return store.rows_by_job(connection, rows) if outcome.unexpected_count else None
    jobs = [row["job_id"] for row in outcome.rows if isinstance(row, dict) and row.get("job_id") is not None]
    return Counter(jobs) if jobs and len(jobs) == len(outcome.rows) else None


def _table(full_name: str) -> str:
    return full_name.partition(".")[0]
