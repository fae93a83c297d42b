"""Great Expectations at work: our own kind of expectation, and a suite held against a view of the warehouse.

Most expectations say that there are no rows of some sort. Great Expectations' own `unexpected_rows_expectation` asks
twice for each, once for the rows and once for their number. `expect_no_rows` asks for the number alone and leaves the
asking to Great Expectations' bundles: all such expectations of a suite are one query, in which conditions on single
rows share one pass over the batch.

Importing this module takes seconds, for it imports Great Expectations.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import great_expectations as gx
from great_expectations.compatibility import pydantic
from great_expectations.core import ExpectationValidationResult
from great_expectations.core.batch import Batch
from great_expectations.core.id_dict import IDDict
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types import base
from great_expectations.execution_engine import SqlAlchemyExecutionEngine
from great_expectations.execution_engine.sqlalchemy_batch_data import SqlAlchemyBatchData
from great_expectations.expectations.core.expect_table_row_count_to_equal import ExpectTableRowCountToEqual
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.expectations.metrics.table_metrics import table_row_count  # noqa: F401 - registers itself
from great_expectations.validator.validator import Validator

from llmprism_tasks import postponed
from llmprism_tasks.warehouse import dialect

logging.getLogger("great_expectations").setLevel(logging.ERROR)

COUNT = "batch.rows_that_should_not_be"
VALUES_TOLD = 20
GATHERED = ("great_expectations.expectations.core", "great_expectations.expectations.metrics")
"""Packages of all that Great Expectations has; `validation` postpones them."""


class ExpectNoRows(BatchExpectation):  # type: ignore[misc]
    """Expect no rows of some sort; known to suites as `expect_no_rows`.

    Attributes
    ----------
    where : condition on a row of the batch, in SQL; rows for which it is true are unexpected, NULL is not true
    query : instead of it, a query whose rows are unexpected; `{batch}` in it stands for the batch
    column : the one column it is about, if it is about one; with a condition, its least unexpected values are told
    """

    where: str | None = None
    query: str | None = None
    column: str | None = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (COUNT,)
    success_keys: ClassVar[tuple[str, ...]] = ("where", "query", "column")
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id",)
    _configuration: ExpectationConfiguration | None = pydantic.PrivateAttr(None)

    @property
    def configuration(self) -> ExpectationConfiguration:
        """What it was made from; Great Expectations asks for it some sixty times in each validation."""
        if self._configuration is None:
            self._configuration = super().configuration
        return self._configuration

    def _validate(self, metrics: Mapping[str, dict[str, Any]], **_: object) -> dict[str, Any]:
        count, values = metrics[COUNT]["count"], metrics[COUNT]["values"]
        told = {"partial_unexpected_list": values or []} if self.column and self.where else {}
        return {"success": count == 0, "result": {"observed_value": count, **told}}


class RowsThatShouldNotBe(TableMetricProvider):  # type: ignore[misc]
    """The number of rows that an `expect_no_rows` is about, as one column of Great Expectations' bundled query."""

    metric_name = COUNT
    value_keys = ("where", "query", "column")

    @metric_partial(  # type: ignore[untyped-decorator]
        engine=SqlAlchemyExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _sqlalchemy(
        cls,  # noqa: N805 - Great Expectations makes a class method of it
        execution_engine: SqlAlchemyExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: object,
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        where, query, column = (metric_value_kwargs[name] for name in cls.value_keys)
        values = "NULL"
        if where is not None:
            count = f"count(*) FILTER (WHERE {where})"
            if column is not None:
                values = f"min({column}, {VALUES_TOLD}) FILTER (WHERE {where})"
        else:
            batch = execution_engine.get_domain_records(metric_domain_kwargs).name
            # The aggregate of nothing makes the bundle one row, whatever else is in it.
            count = (
                f"count(*) FILTER (WHERE false) + (SELECT count(*) FROM ({query.format(batch=batch)}) AS unexpected)"
            )
        return dialect.expression(f"{{'count': {count}, 'values': {values}}}"), metric_domain_kwargs, {}


KNOWN = {ExpectNoRows.expectation_type, ExpectTableRowCountToEqual.expectation_type}
"""Expectations that are there, with their metrics, once this module is imported."""


@cache
def _context() -> EphemeralDataContext:
    """Return Great Expectations without usage reports, progress bars and folders for documents."""
    config = base.DataContextConfig(
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=base.ProgressBarsConfig(globally=False, metric_calculations=False),
        analytics_enabled=False,
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def hold(
    connection: Any, views: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, list[ExpectationValidationResult]]:
    """Hold views of a warehouse against expectations.

    Parameters
    ----------
    connection : open, of DuckDB
    views : a view's name to the expectations about it, in Great Expectations' JSON

    Returns
    -------
    for each view the results, in no particular order
    """
    if any(one["type"] not in KNOWN for expectations in views.values() for one in expectations):
        for package in GATHERED:
            postponed.run(package)
    engine = SqlAlchemyExecutionEngine(engine=dialect.engine(connection))
    held = {}
    for view, expectations in views.items():
        data = SqlAlchemyBatchData(engine, table_name=view, create_temp_table=False)
        batch = Batch(data=data, batch_definition=IDDict(view=view))
        held[view] = Validator(engine, data_context=_context(), batches=[batch]).graph_validate(
            [ExpectationConfiguration(**one) for one in expectations], {"result_format": "BASIC"}
        )
    return held
