"""Whether machines share a window: asked in each run, so nothing is imported that only their windows need."""

from __future__ import annotations

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings


def divide(window: Window, settings: Settings) -> list[dict[str, str | int]]:
    """Return what `stage_task.run_partition` takes, for each partition that gets a task of its own.

    Returns
    -------
    nothing where one machine does a window (`batches.spread` = 1), or hosts cannot be separated: then the tasks of the
    stages do all
    """
    if settings.batches.spread == 1:
        return []
    from llmprism_tasks.execution import stage_task  # noqa: PLC0415 - heavy

    return stage_task.divide(window, settings)
