"""Messages about incidents: one for each that opened or closed, to the address in the settings."""

from __future__ import annotations

import json
import logging

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.execution.notify.formats import FORMATS
from llmprism_tasks.execution.notify.webhook import Outcome, post
from llmprism_tasks.settings import NotifySettings
from llmprism_tasks.warehouse import notifications
from llmprism_tasks.warehouse.connect import Warehouse

logger = logging.getLogger(__name__)


def send_messages(warehouse: Warehouse, window: Window, settings: NotifySettings, *, now_ns: int) -> dict[str, int]:
    """Send a message for each incident that opened or closed, as far as is known when a window ends.

    A window that ended long ago sends none, so that a backfill pages nobody. A message is claimed before it is sent:
    if this process dies in between, it is lost rather than sent twice. A message that the receiver refuses is tried
    again by the next window. A receiver that cannot be reached is not tried again in this window.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch

    Returns
    -------
    how many messages were `sent`, and how many were `not_sent`
    """
    counts = {"sent": 0, "not_sent": 0}
    if not settings.webhook or now_ns - window.end_ns > settings.oldest_s * NANOSECONDS_PER_SECOND:
        return counts
    claimed = notifications.claim(
        warehouse,
        window,
        kinds=settings.kind_names,
        least_severity=settings.least_severity,
        now_ns=now_ns,
        message=lambda row: json.dumps(FORMATS[settings.format](row), ensure_ascii=False),
    )
    reachable = True
    for row in claimed:
        outcome = Outcome("refused", "the receiver could not be reached before")
        if reachable:
            outcome = post(settings.webhook, row["message"], timeout_s=settings.timeout_s)
            reachable = outcome.answered
        notifications.settle(warehouse, row, outcome=outcome.state, detail=outcome.detail)
        counts["sent" if outcome.state == "sent" else "not_sent"] += 1
        if outcome.detail is not None:
            logger.warning("window %s: %s %s: %s", window, row["change"], row["incident_id"], outcome.detail)
    return counts
