"""Send claimed messages, and record what became of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from llmprism_tasks.execution.notify.formats import body
from llmprism_tasks.execution.notify.webhook import Outcome, post
from llmprism_tasks.settings import NotifySettings
from llmprism_tasks.warehouse.bookkeeping import notifications
from llmprism_tasks.warehouse.connect import Warehouse

logger = logging.getLogger(__name__)


def deliver(warehouse: Warehouse, claimed: Sequence[dict[str, Any]], settings: NotifySettings) -> dict[str, int]:
    """Post messages one by one; after a receiver could not be reached, the others are not tried.

    Parameters
    ----------
    claimed : rows of `notifications`

    Returns
    -------
    how many messages were `sent`, and how many were `not_sent`
    """
    counts = {"sent": 0, "not_sent": 0}
    reachable = True
    for row in claimed:
        outcome = Outcome("refused", "the receiver could not be reached before")
        if reachable:
            outcome = post(settings.webhook, body(row, settings.format), timeout_s=settings.timeout_s)
            reachable = outcome.answered
        notifications.settle(warehouse, row, outcome=outcome.state, detail=outcome.detail)
        counts["sent" if outcome.state == "sent" else "not_sent"] += 1
        if outcome.detail is not None:
            logger.warning("%s %s: %s", row["change"], row["incident_id"], outcome.detail)
    return counts
