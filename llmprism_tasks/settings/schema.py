"""How a setting is declared: its default, unit, range and reason."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def number(default: float, *, unit: str, low: float, high: float, reason: str) -> Any:
    """Declare a numeric setting with its unit, its range (both ends allowed) and why it is what it is."""
    return field(default=default, metadata={"unit": unit, "low": low, "high": high, "reason": reason})


def text(
    default: str,
    *,
    reason: str,
    choices: tuple[str, ...] = (),
    begins: tuple[str, ...] = (),
    several: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a text setting.

    Parameters
    ----------
    choices : empty when any text will do
    begins : how a text that is not empty must begin; empty when in any way
    several : whether some of them may be given with commas between
    secret : whether the value must not be shown: it is in no output, nor in the `repr` of settings
    """
    limits = {"choices": choices, "begins": begins, "several": several}
    meta = {"unit": "text", "secret": secret, "reason": reason} | limits
    return field(default=default, repr=not secret, metadata=meta)
