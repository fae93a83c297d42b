"""Switch level: a switch with slow transfers through it that is not proven to be the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmprism_tasks.settings import DiagnosisSettings

Row = dict[str, Any]


def rows(row: Row, culprit: Row, settings: DiagnosisSettings) -> Iterator[Row]:
    """Yield a switch that explains only a part of the loss.

    Parameters
    ----------
    row : what a job loses, as `Losses.row` returns
    culprit : a row of `Suspicion.culprits`
    """
    if culprit["device_type"] == "switch" and row["severity"] * row["confidence"] >= settings.least_effect:
        how = "and other devices are slow, too"
        yield row | {"kind": "switch_level", "subject_type": "switch", "subject": culprit["device"], "how": how}
