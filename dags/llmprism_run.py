"""What the tasks of a run share: its window and settings, when to try again, and the names of the result tables."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseNotifier, ExceptionRetryPolicy, RetryAction, RetryRule, get_current_context
from airflow.sdk.observability.stats import Stats

from llmprism_tasks.contract.errors import PermanentError, SettingsError, TransientError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import of_environment

if TYPE_CHECKING:
    from airflow.sdk import Context

TRYING_AGAIN: dict[str, Any] = {
    "retries": 5,
    "retry_delay": dt.timedelta(seconds=2),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": dt.timedelta(minutes=1),
    "retry_policy": ExceptionRetryPolicy(
        rules=[
            RetryRule(PermanentError, action=RetryAction.FAIL, reason="the same input would fail again"),
            RetryRule([TransientError, OSError], action=RetryAction.RETRY, reason="it may work later"),
        ],
        default=RetryAction.FAIL,  # a bug in llmprism: retrying would hide it. A killed task is retried all the same.
    ),
}


def assets(*tables: str) -> list[Asset]:
    """Return the assets of result tables: other DAGs can be scheduled on them."""
    return [Asset(name=f"llmprism_{table}", uri=f"llmprism://warehouse/{table}") for table in tables]


def current_run() -> tuple[Window, Settings]:
    """Return the running task's window and settings, and write the window on the assets it is about to announce.

    Raises
    ------
    SettingsError : the run has no window, or one that `window.length_s` disagrees with
    """
    context, settings = get_current_context(), of_environment()
    window = window_in(context, settings)
    for asset in context["task"].outlets:
        context["outlet_events"][asset].extra = {"window_start_ns": window.start_ns}
    return window, settings


def send_metrics(*, gauges: Mapping[str, float | None] | None = None, counts: Mapping[str, int] | None = None) -> None:
    """Send metrics the way that Airflow is set to; a gauge that is None is not known and not sent."""
    for name, value in (gauges or {}).items():
        if value is not None:
            Stats.gauge(f"llmprism.{name}", value)
    for name, count in (counts or {}).items():
        Stats.incr(f"llmprism.{name}", count)


class IncidentMessages(BaseNotifier):
    """Send messages about incidents that opened or closed with a task's window; failures are logged, no more."""

    def notify(self, context: Context) -> None:
        from llmprism_tasks.execution.window import send_messages

        settings = of_environment()
        send_messages(window_in(context, settings), settings, now_ns=time.time_ns())


def window_in(context: Context, settings: Settings) -> Window:
    """Return the window of the run that a context is of."""
    return window_of_run(
        context["params"].get("window_start"),
        context.get("data_interval_start"),
        context.get("data_interval_end"),
        settings.window.length_ns,
    )


def window_of_run(asked: str | None, start: dt.datetime | None, end: dt.datetime | None, length_ns: int) -> Window:
    """Return the window that was asked for by its start, or else the run's data interval.

    Raises
    ------
    SettingsError : neither is there, the text is no time, or the interval is not one window long
    """
    if asked:
        try:
            moment = dt.datetime.fromisoformat(asked)
        except ValueError as error:
            raise SettingsError(
                found=f"window_start {asked!r}", expected="a time such as 2026-05-01T04:12Z", todo="Trigger again."
            ) from error
        return Window.starting(moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC), length_ns)
    if start is None or end is None:
        raise SettingsError(
            found="a run with neither a logical date nor window_start",
            expected="one of them, to know the window",
            todo="Trigger again with window_start set to a time in it, such as 2026-05-01T04:12Z.",
        )
    window = Window.starting(start, length_ns)
    if window.end_ns != Window.starting(end, length_ns).start_ns:
        raise SettingsError(
            found=f"a run from {start} to {end} and windows of {length_ns / 1e9:g} s",
            expected="a run for each window",
            todo="Set window.length_s to 60, or give the DAG a schedule of the windows' length.",
        )
    return window
