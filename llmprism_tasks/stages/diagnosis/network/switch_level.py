"""Switch level: a switch with slow transfers through it that is not proven to be the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.network.localisation import ends

Row = dict[str, Any]


def rows(row: Row, culprit: Row, settings: DiagnosisSettings) -> Iterator[Row]:
    """Yield the switch where all suspect links meet, or a switch that explains only a part of the loss.

    Parameters
    ----------
    row : what a job loses, as `Losses.row` returns
    culprit : a row of `Suspicion.culprits`
    """
    if culprit["rivals"]:
        suspects = [culprit["device"], *culprit["rivals"]]
        at = set.intersection(*map(ends, suspects))
        how = f"and the fault may be its own or that of one of {', '.join(suspects)}"
    else:
        at = {culprit["device"]} if culprit["device_type"] == "switch" else set()
        how = "and other devices are slow, too"
    if len(at) == 1 and row["severity"] * row["confidence"] >= settings.least_effect:
        yield row | {"kind": "switch_level", "subject_type": "switch", "subject": at.pop(), "how": how}
