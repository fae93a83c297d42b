"""Expectations that Great Expectations brings itself: held against a view of the warehouse through SQLAlchemy.

Importing this module takes seconds, for it imports all of Great Expectations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import great_expectations as gx
from great_expectations.core import ExpectationValidationResult
from great_expectations.core.batch import Batch
from great_expectations.core.id_dict import IDDict
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types import base
from great_expectations.execution_engine import SqlAlchemyExecutionEngine
from great_expectations.execution_engine.sqlalchemy_batch_data import SqlAlchemyBatchData
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.validator.validator import Validator

from llmprism_tasks.warehouse import dialect


@cache
def _context() -> EphemeralDataContext:
    """Return Great Expectations without usage reports, progress bars and folders for documents."""
    config = base.DataContextConfig(
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=base.ProgressBarsConfig(globally=False, metric_calculations=False),
        analytics_enabled=False,
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def hold(connection: Any, view: str, expectations: Sequence[Mapping[str, Any]]) -> list[ExpectationValidationResult]:
    """Hold a view of a warehouse against expectations; takes and returns what `engine.hold` does."""
    engine = SqlAlchemyExecutionEngine(engine=dialect.engine(connection))
    data = SqlAlchemyBatchData(engine, table_name=view, create_temp_table=False)
    batch = Batch(data=data, batch_definition=IDDict(view=view))
    validator = Validator(engine, data_context=_context(), batches=[batch])
    configurations = [ExpectationConfiguration(**one) for one in expectations]
    results: list[ExpectationValidationResult] = validator.graph_validate(configurations, {"result_format": "BASIC"})
    return results
