"""What Airflow's triggerer calls when a minute's stock was not taken in time: no worker may be running any task."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from llmprism_tasks.settings.load import of_environment

logger = logging.getLogger(__name__)


async def stock_not_taken(context: dict[str, Any] | None = None) -> None:
    """Warn, and send the message about silence if no window was finished for `catch_up.silent_after_s`.

    Nothing is returned: Airflow stores what a callback returns as text, and its triggerer ends at anything else.

    Parameters
    ----------
    context : of the run that missed its deadline, from Airflow
    """
    await asyncio.to_thread(_tell, ((context or {}).get("dag_run") or {}).get("dag_run_id"))


def _tell(run_id: str | None) -> None:
    from llmprism_tasks.execution.catch_up import tell_now  # noqa: PLC0415 - brings Polars, also where DAGs are parsed

    logger.warning(
        "run %s of llmprism_catch_up missed its deadline: tasks wait. See that executor and workers are running.",
        run_id,
    )
    tell_now(of_environment(), now_ns=time.time_ns())
