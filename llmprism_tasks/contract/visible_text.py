"""Visible text: characters that steer a terminal or turn text around are removed from names, and shown in messages.

They are the control characters C0 and C1 (escape sequences begin with one), line and paragraph separators, and the
marks of writing direction, with which a name can look like another.
"""

from __future__ import annotations

import re
from typing import Any

STEERING = r"[\x00-\x1f\x7f-\x9f\x{061c}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}]"
"""The characters, as a regular expression of Polars and DuckDB."""

_KEPT_IN_MESSAGES = "\n\t"
_STEERING = re.compile(re.sub(r"\\x\{(\w+)\}", r"\\u\1", STEERING))


def shown(value: Any) -> Any:
    """Return a text with such characters written as in JSON, but for line breaks and tabs; also in lists and dicts."""
    if isinstance(value, str):
        return _STEERING.sub(_escape, value)
    if isinstance(value, list | tuple):
        return type(value)(map(shown, value))
    if isinstance(value, dict):
        return {shown(key): shown(one) for key, one in value.items()}
    return value


def _escape(found: re.Match[str]) -> str:
    sign = found.group()
    if sign in _KEPT_IN_MESSAGES:
        return sign
    return f"\\u{ord(sign):04x}"
