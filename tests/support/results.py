"""Results of runs made by hand, in the form in which they are kept."""

from __future__ import annotations

from typing import Any

NOTHING = {"found": 0, "right": 0, "true": 0, "met": 0, "absent": 0, "precision": None, "recall": None}


def result(**changes: Any) -> dict[str, Any]:
    """Return a result in which everything is right but for changes of its headline, `pairs`, `confusions` and so on."""
    every = {
        "windows": 4, "exact": 4, "invented": 0, "called_other": 0, "layouts": 4, "layouts_right": 4, "steps": 50,
        "steps_found": 50, "steps_extra": 0, "changed_ids": 0, "false_diagnoses": 0, "job_hours": 0.1, "faults": 0,
        "faults_named": 0, "unsure": 0, "degrees": {"tp": {"right": 4, "wrong": 0, "unknown": 0}},
    }  # fmt: skip
    row = {**every, "duration_error": {"median": 0.0, "p95": 0.0, "max": 0.0}}
    every |= {name: value for name, value in changes.items() if name in every}
    pair = NOTHING | {"found": 20, "right": 20, "true": 20, "met": 20}
    figures = {
        "all": every,
        "jobs": {"chat": row | {name: value for name, value in every.items() if name in row}},
        "pairs": changes.get("pairs", {"dp": pair, "pp": pair}),
        "confusions": changes.get("confusions", []),
        "degrees": changes.get("degrees", []),
        "confidence": changes.get(
            "bands", [{"job": "chat", "of": "jobs", "band": "0.99 to 1", "right": 4, "wrong": 0}]
        ),
        "invented": [],
        "faults": changes.get("of_faults", []),
        "false_diagnoses": changes.get("false", []),
    }
    kept = {"figures": figures, "errors": [0.0, 0.001], "confidence": [1.0] * 4, "version": "v", "cpu_s": 1.0}
    return kept | {name: changes[name] for name in ("errors", "confidence") if name in changes}
