"""A window's rows held against the suites of `expectations/`, as SQL inside the warehouse.

One suite per table, named for it, in Great Expectations' own JSON. Each expectation has a name (in `meta`), a severity
(`critical` stops the window, `warning` is recorded) and notes: why it should hold, and what to do if it does not. Where
the rows that break a critical one belong to some jobs only, these are set aside, and the window goes on without them.
A query sees a batch, and may see the window's rows of any table `t` of the contract as `window_t`: as they are stored,
which for some tables is with numbers for texts (`warehouse.numbers`). It knows the window as
`getvariable('window_start_ns')` and `getvariable('window_end_ns')`: as a bound of Great Expectations, a moment would
become a float and be off by some hundred nanoseconds.

Great Expectations takes seconds to import, so only the functions here do it, in the one task that validates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from llmprism_tasks.contract import shipped_files
from llmprism_tasks.contract.errors import ContractError
from llmprism_tasks.contract.frames import conform, empty
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.validation import importing, refusals
from llmprism_tasks.validation.refusals import REFUSED, Refusals
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.nic_codes import among, stored

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

CRITICAL = "critical"
BROKEN = ~pl.col("success") & (pl.col("severity") == CRITICAL)
"""Which results are of critical expectations that do not hold."""


def suite(table: str) -> dict[str, Any]:
    """Return a table's suite, as Great Expectations' JSON has it.

    Raises
    ------
    ContractError : there is no such suite, or an expectation of it has no name
    """
    suites = shipped_files.folder("expectations")
    path = suites / f"{table}.json"
    if not path.is_file():
        raise ContractError(
            found=f"no suite {path.name}",
            expected=f"one of {', '.join(sorted(file.stem for file in suites.glob('*.json')))}",
            todo="Name a table that has a suite, or write one.",
        )
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if not all(expectation.get("meta", {}).get("name") for expectation in loaded["expectations"]):
        raise ContractError(
            found=f"an expectation without a name in {path.name}",
            expected='each expectation with "meta": {"name": …}',
            todo="Name it: results are kept by that name.",
        )
    return loaded


def prepare() -> None:
    """Import what `validate` needs, before or while something else is done; see `importing.ours`."""
    importing.ours()


def validate(warehouse: Warehouse, window: Window, tables: Sequence[str]) -> pl.DataFrame:
    """Hold a window's rows of some tables against their suites, and record the results.

    The rows stay in the warehouse: each expectation is a query over views of the window. The results replace the
    window's earlier ones for these tables; those of other tables stay.

    Returns
    -------
    the rows of `validation_results` for these tables, whether they hold or not

    Raises
    ------
    WarehouseBusy : another process held the warehouse for too long
    """
    with warehouse.reading() as connection:  # one, so that all see the same state and wait for the lock once
        observed = _observe(connection, window, tables)
        before = store.rows(connection, "validation_results", window)
    of_others = ~pl.col("expectation").str.split(".").list.first().is_in(list(tables))
    store.replace(warehouse, window, {"validation_results": pl.concat([before.filter(of_others), observed])})
    return observed


def validate_by_job(warehouse: Warehouse, window: Window, tables: Sequence[str]) -> pl.DataFrame:
    """Do what `validate` does, and set aside the jobs whose rows break critical expectations, if the rest then holds.

    Their rows leave all of these tables, in one transaction with the results, which keep what was refused, and with the
    window's `reason`, which tells it. Who was set aside stays so until a job of that id is recognised again or the
    window is landed anew, for neither this nor the stages that only read jobs would find it when done again.

    Parameters
    ----------
    tables : which have a `job_id`

    Returns
    -------
    the rows of `validation_results` for these tables; where jobs were set aside, of the rows that remain, but for the
    expectations that the jobs broke

    Raises
    ------
    WarehouseBusy : another process held the warehouse for too long
    """
    with warehouse.reading() as connection:
        observed, refused = _observe_by_job(connection, window, tables)
        before = store.rows(connection, "validation_results", window)
        odd = store.rows(connection, "windows", window).filter(pl.col("status") != "stopped")["reason"].to_list()
        known = store.rows(connection, "jobs", window, columns=["job_id"])["job_id"]
    of_these = pl.col("expectation").str.split(".").list.first().is_in(list(tables))
    standing = refusals.standing(refusals.told(before.filter(of_these)), known)
    results = refusals.noted(observed, refusals.joined(standing, refused))
    store.set_aside(
        warehouse,
        window,
        list(refusals.by_job(refused)),
        tables=tables,
        results=pl.concat([before.filter(~of_these), results]),
        reason=refusals.reason(odd[0] if odd else None, refusals.told(results)),
    )
    return results


def _observe_by_job(connection: Any, window: Window, tables: Sequence[str]) -> tuple[pl.DataFrame, Refusals]:
    """Run the suites, and again without the jobs that break critical expectations, if what breaks them is theirs alone.

    Returns
    -------
    the results of all rows and no refusals, or those of the rows that remain, which then hold, and the refusals
    """
    observed = _observe(connection, window, tables)
    refused = _refused(connection, observed)
    if not refused:
        return observed, {}
    rest = _observe(connection, window, tables, without=list(refusals.by_job(refused)))
    return (rest, refused) if rest.filter(BROKEN).is_empty() else (observed, {})


def _refused(connection: Any, observed: pl.DataFrame) -> Refusals:
    """Return whose rows break the critical expectations that do not hold; nothing if one of them cannot be assigned."""
    refused: Refusals = {}
    for name, seen, count in observed.filter(BROKEN).select("expectation", "observed", "unexpected_count").iter_rows():
        table, expectation = name.partition(".")[0], _expectation(name)
        unexpected = None if count is None else refusals.unexpected_rows(expectation, f"window_{table}")
        rows = None if unexpected is None else store.rows_by_job(connection, unexpected)
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


def stopping_error(window: Window, results: pl.DataFrame) -> ContractError | None:
    """Return the error that stops a window when a critical expectation of its results does not hold, else None.

    Expectations that jobs were set aside for stop nothing.
    """
    broken = results.filter(BROKEN & ~REFUSED)
    if broken.is_empty():
        return None
    names = broken["expectation"].to_list()
    met = [
        f"{name} ({observed if count is None else f'unexpected rows: {count}'})"
        for name, observed, count in broken.select("expectation", "observed", "unexpected_count").iter_rows()
    ]
    return ContractError(
        found=f"window {window} breaks {', '.join(met)}",
        expected="every critical expectation to hold",
        todo=_todo(names),
    )


def _todo(expectations: Iterable[str]) -> str:
    """Return why expectations should hold and what to do if they do not."""
    return " ".join(dict.fromkeys(str(_expectation(name)["notes"]) for name in expectations))


def _expectation(full_name: str) -> dict[str, Any]:
    """Return an expectation by its table and name, joined by a dot."""
    table, _, name = full_name.partition(".")
    return next(one for one in suite(table)["expectations"] if one["meta"]["name"] == name)


def _observe(connection: Any, window: Window, tables: Sequence[str], *, without: Sequence[str] = ()) -> pl.DataFrame:
    """Run the suites in an open connection, on what the tables would be without some jobs.

    Tables are seen as they are stored: numbers for texts are equal where texts are, and rows come in their order.
    """
    connection.execute("SET VARIABLE window_start_ns = ?", [window.start_ns])
    connection.execute("SET VARIABLE window_end_ns = ?", [window.end_ns])
    for table in TABLES:
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW window_{table.name} AS "
            f"FROM {stored(table.name)} WHERE window_start_ns = getvariable('window_start_ns')"
            + (
                f" AND NOT {among(connection, table.name, without)}"
                if without and "job_id" in table.column_names
                else ""
            )
        )
    rows = [
        {"window_start_ns": window.start_ns, **_row(table, result)}
        for table in tables
        for result in _held(connection, f"window_{table}", suite(table)["expectations"])
    ]
    return conform(pl.DataFrame(rows, schema=empty("validation_results").schema), "validation_results")


def _held(
    connection: Any, view: str, expectations: Sequence[Mapping[str, Any]]
) -> Iterator[ExpectationValidationResult]:
    """Hold a view against expectations: our own, and those that Great Expectations brings, if there are any."""
    brought = [one for one in expectations if one["type"] not in importing.KNOWN]
    known = [one for one in expectations if one["type"] in importing.KNOWN]
    if brought:
        yield from importing.brought().hold(connection, view, brought)
    yield from importing.ours().hold(connection, view, known)


def _row(table: str, result: ExpectationValidationResult) -> dict[str, object]:
    """Return what `validation_results` keeps of one expectation's outcome."""
    config, observed = result.expectation_config, dict(result.result)
    count = observed.get("observed_value") if config.type == "expect_no_rows" else None
    if not observed:  # it could not be evaluated: the reason is all there is to observe
        observed = {"error": _error(result.exception_info)}
    seen = json.loads(json.dumps(observed, default=str), parse_constant=str)  # NaN is no JSON, its name is
    return {
        "expectation": f"{table}.{config.meta['name']}",
        "column": config.kwargs.get("column", ""),
        "severity": config.severity.value,
        "success": bool(result.success),
        "observed": json.dumps(seen, sort_keys=True),
        "unexpected_count": count,
    }


def _error(exception_info: Mapping[str, Any]) -> str:
    """Return the messages of an expectation that could not be evaluated; a metric's are kept one level down."""
    infos = [exception_info, *(info for info in exception_info.values() if isinstance(info, Mapping))]
    return "; ".join(dict.fromkeys(str(info["exception_message"]) for info in infos if info.get("exception_message")))
