"""Great Expectations at work: our own kind of expectation, and suites held against views of the warehouse.

Most expectations say that there are no rows of some sort. Great Expectations' own `unexpected_rows_expectation` asks
for the rows, with SQLAlchemy in between. `expect_no_rows` asks DuckDB itself for their number, which looks at no other
columns than a condition names, and at no parts of the table about which its statistics leave no doubt.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from great_expectations.compatibility import pydantic
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.expectations.core.expect_table_row_count_to_equal import (
    ExpectTableRowCountToEqual,  # noqa: F401 - registers itself
)
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.validator.validator import Validator

from llmprism_tasks.validation import refusals

logging.getLogger("great_expectations").setLevel(logging.ERROR)

UNEXPECTED = "batch.rows_that_should_not_be"
VALUES_TOLD = 20
SILENTLY = SimpleNamespace(progress_bars={"globally": False})
"""All that a validator wants to know of its surroundings."""


class ViewOfWarehouse(ExecutionEngine):  # type: ignore[misc]
    """Where metrics are computed: a view, in an open connection of DuckDB."""

    def __init__(self, connection: Any, view: str) -> None:
        super().__init__()
        self.connection, self.view = connection, view

    def one(self, what: str, rows: str) -> Any:
        """Return one value of some rows.

        Parameters
        ----------
        what : an aggregate
        rows : the rows, from `FROM` on
        """
        return self.connection.execute(f"SELECT {what} {rows}").fetchone()[0]

    def _none(self, *_: object) -> Any:
        """Great Expectations' other ways to say which rows are meant; ours is SQL."""
        raise NotImplementedError

    get_batch_data_and_markers = _none
    _comparison_condition_to_filter_clause = _nullity_condition_to_filter_clause = _none
    _and_condition_to_filter_clause = _or_condition_to_filter_clause = _none


class ExpectNoRows(BatchExpectation):  # type: ignore[misc]
    """Expect no rows of some sort; known to suites as `expect_no_rows`.

    Attributes
    ----------
    where : condition on a row of the batch, in SQL; rows for which it is true are unexpected, NULL is not true
    query : instead of it, a query whose rows are unexpected; `{batch}` in it stands for the batch
    column : the one column it is about, if it is about one, whose least unexpected values are told
    """

    where: str | None = None
    query: str | None = None
    column: str | None = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (UNEXPECTED,)
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
        count, values = metrics[UNEXPECTED]["count"], metrics[UNEXPECTED]["values"]
        told = {"partial_unexpected_list": values} if self.column else {}
        return {"success": count == 0, "result": {"observed_value": count, **told}}


class UnexpectedRows(TableMetricProvider):  # type: ignore[misc]
    """The rows that an `expect_no_rows` is about: their number, and the least values of its column."""

    metric_name = UNEXPECTED
    value_keys = ("where", "query", "column")

    @metric_value(engine=ViewOfWarehouse)  # type: ignore[untyped-decorator]
    def _in_warehouse(
        cls,  # noqa: N805 - Great Expectations makes a class method of it
        execution_engine: ViewOfWarehouse,
        metric_value_kwargs: dict[str, Any],
        **_: object,
    ) -> dict[str, Any]:
        rows = refusals.rows_of(**metric_value_kwargs, batch=execution_engine.view)
        count = execution_engine.one("count(*)", rows)
        column = metric_value_kwargs["column"] if count else None
        values = execution_engine.one(f"min({column}, {VALUES_TOLD})", rows) if column else None
        return {"count": count, "values": [None if value != value else value for value in values or ()]}  # noqa: PLR0124 - NaN


class RowCount(TableMetricProvider):  # type: ignore[misc]
    """The number of rows of a view."""

    metric_name = "table.row_count"

    @metric_value(engine=ViewOfWarehouse)  # type: ignore[untyped-decorator]
    def _in_warehouse(
        cls,  # noqa: N805 - Great Expectations makes a class method of it
        execution_engine: ViewOfWarehouse,
        **_: object,
    ) -> int:
        return int(execution_engine.one("count(*)", f"FROM {execution_engine.view}"))


def hold(connection: Any, view: str, expectations: Sequence[Mapping[str, Any]]) -> list[ExpectationValidationResult]:
    """Hold a view of a warehouse against expectations.

    Parameters
    ----------
    connection : open, of DuckDB
    expectations : in Great Expectations' JSON

    Returns
    -------
    the results, in no particular order
    """
    validator = Validator(ViewOfWarehouse(connection, view), data_context=SILENTLY)
    configurations = [ExpectationConfiguration(**one) for one in expectations]
    results: list[ExpectationValidationResult] = validator.graph_validate(configurations, {"result_format": "BASIC"})
    return results
