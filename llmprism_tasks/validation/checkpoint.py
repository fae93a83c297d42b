"""Checkpoints of Great Expectations over one window of the warehouse: suites in, outcomes and Data Docs out.

Importing this module takes seconds, for it imports Great Expectations.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import great_expectations as gx
from great_expectations.core import ExpectationValidationResult
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.datasource.fluent import SQLDatasource
from great_expectations.expectations.core import UnexpectedRowsExpectation
from great_expectations.expectations.expectation import (
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    MulticolumnMapExpectation,
)
from great_expectations.expectations.registry import get_expectation_impl

from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.warehouse.storage import batch

logging.getLogger("great_expectations").setLevel(logging.ERROR)  # what does not hold is said by llmprism itself

ABOUT_ROWS = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation, UnexpectedRowsExpectation)
"""Expectations that single rows break, not the table as a whole."""

KEPT = ("element_count", "observed_value", "missing_count", "unexpected_count", "unexpected_percent")
"""What is kept of a result as Great Expectations has it; rows are kept apart."""


class Outcome(NamedTuple):
    """What became of one expectation.

    Attributes
    ----------
    name : the table and the expectation's own name, joined by a dot
    column : the one that it is about; empty if it is about several, or the table
    severity : `critical`, `warning` or `info`
    unexpected_count : rows that break it; None if it is not about rows, if it could not be evaluated, or if rows were
        not asked for
    observed : what else Great Expectations says; `error` where the expectation could not be evaluated
    rows : those that break it, if rows were asked for; of a query, the first 200
    query : the query whose rows break it, if that is how it is said
    """

    name: str
    column: str
    severity: str
    success: bool
    unexpected_count: int | None
    observed: Mapping[str, Any]
    rows: Sequence[Any]
    query: str | None


def run(
    connection: Any, suites: Mapping[str, Mapping[str, Any]], *, rows: bool = False, docs: Path | None = None
) -> list[Outcome]:
    """Hold tables against suites: a validation definition and a checkpoint for each.

    Parameters
    ----------
    connection : open, of DuckDB, in which a table's name stands for the batch (`warehouse.storage.batch.narrow`)
    suites : tables to suites, as Great Expectations' JSON has them
    rows : whether to find the rows that break expectations, which takes longer
    docs : folder in which to build Data Docs of the results; None for no Data Docs

    Returns
    -------
    the outcomes, in the order of tables and suites
    """
    context = _context(docs)
    source = context.data_sources.add_sql(
        "warehouse",
        connection_string=batch.URL,
        create_temp_table=False,
        kwargs=batch.engine_arguments(connection),
        assets=[_asset(table) for table in suites],  # all at once: the context is stored anew for each one added later
    )
    outcomes = [
        outcome
        for table, suite in suites.items()
        for outcome in _run(_checkpoint(context, source, table, suite, rows=rows), table, suite)
    ]
    if docs is not None:
        context.build_data_docs()
    return outcomes


def _context(docs: Path | None) -> EphemeralDataContext:
    """Return a context without usage reports and progress bars, which keeps nothing on disk but Data Docs."""
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=ProgressBarsConfig(globally=False, metric_calculations=False),
        analytics_enabled=False,
        data_docs_sites={} if docs is None else {"window": _site(docs)},
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def _site(docs: Path) -> dict[str, Any]:
    """Return the configuration of a site of Data Docs in a folder, which Great Expectations wants to be absolute."""
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.absolute())},
    }


def _asset(table: str) -> dict[str, Any]:
    return {"name": table, "type": "table", "table_name": table, "batch_definitions": [{"name": "window"}]}


def _checkpoint(
    context: EphemeralDataContext, source: SQLDatasource, table: str, suite: Mapping[str, Any], *, rows: bool
) -> gx.Checkpoint:
    """Return a checkpoint that holds a table against its suite."""
    definition = gx.ValidationDefinition(
        name=table,
        data=source.get_asset(table).get_batch_definition("window"),
        suite=context.suites.add(gx.ExpectationSuite(**suite)),
    )
    found = {"result_format": "COMPLETE", "unexpected_index_column_names": list(_named_by(table))}
    return context.checkpoints.add(
        gx.Checkpoint(
            name=table,
            validation_definitions=[context.validation_definitions.add(definition)],
            result_format=found if rows else "BOOLEAN_ONLY",
        )
    )


def _named_by(table: str) -> tuple[str, ...]:
    """Return the columns that tell which row of a table is meant: its key, or all if that is the window alone."""
    contract = table_named(table)
    return contract.key if len(contract.key) > 1 else contract.column_names


def _run(checkpoint: gx.Checkpoint, table: str, suite: Mapping[str, Any]) -> list[Outcome]:
    (results,) = checkpoint.run().run_results.values()
    outcomes = {outcome.name: outcome for outcome in (_outcome(table, result) for result in results.results)}
    return [outcomes[f"{table}.{one['meta']['name']}"] for one in suite["expectations"]]


def _outcome(table: str, result: ExpectationValidationResult) -> Outcome:
    config, found = result.expectation_config, result.result
    kind = get_expectation_impl(config.type)
    observed = {key: found[key] for key in KEPT if key in found}
    if not result.success and not found and (error := _error(result.exception_info)):
        observed = {"error": error}
    count = found.get("observed_value" if issubclass(kind, UnexpectedRowsExpectation) else "unexpected_count")
    return Outcome(
        name=f"{table}.{config.meta['name']}",
        column=config.kwargs.get("column", ""),
        severity=config.severity.value,
        success=bool(result.success),
        unexpected_count=0 if result.success and issubclass(kind, ABOUT_ROWS) else count,
        observed=_plain(observed),
        rows=_plain(_rows(found)),
        query=config.kwargs.get("unexpected_rows_query"),
    )


def _rows(found: Mapping[str, Any]) -> Sequence[Any]:
    """Return the rows that a result lists; of columns that are unique together, only these columns."""
    return (
        found.get("details", {}).get("unexpected_rows")
        or found.get("unexpected_index_list")
        or found.get("unexpected_list")
        or []
    )


def _plain(found: Any) -> Any:
    """Return what JSON can say: NaN is no JSON, its name is."""
    return json.loads(json.dumps(found, default=str), parse_constant=str)


def _error(exception_info: Mapping[str, Any]) -> str:
    """Return the messages of an expectation that could not be evaluated; a metric's are kept one level down."""
    infos = [exception_info, *(info for info in exception_info.values() if isinstance(info, Mapping))]
    return "; ".join(dict.fromkeys(str(info["exception_message"]) for info in infos if info.get("exception_message")))
