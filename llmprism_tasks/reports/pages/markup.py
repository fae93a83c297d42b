"""HTML: the templates, the words and numbers in them, and how a page becomes one file.

Every value is escaped by the templates, and texts that come from users' data go through `shown` first.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import plotly
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from llmprism_tasks import __version__
from llmprism_tasks.contract.fault_catalogue import is_silent
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.reports import terminal

FOLDER = Path(__file__).parent
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
ASSETS = {
    "pages.css": (FOLDER / "static" / "pages.css", "text/css"),
    "scheme.js": (FOLDER / "static" / "scheme.js", "text/javascript"),
    "fresh.js": (FOLDER / "static" / "fresh.js", "text/javascript"),
    "charts.js": (FOLDER / "static" / "charts.js", "text/javascript"),
    "timeline.js": (FOLDER / "static" / "timeline.js", "text/javascript"),
    "plotly.min.js": (PLOTLY, "text/javascript"),
}
"""What a page loads: its file and its type. Nothing is loaded from anywhere else."""

PARTS = {
    "compute": "computing",
    "communication": "communication",
    "bubble": "bubble",
    "waiting": "waiting",
    "unexplained": "unexplained",
}
"""How a step's time is divided, in the order in which it is stacked, and the words for it."""

MOST_CHARACTERS = 80
"""Of a name that is shown: host names have at most 63, addresses 45."""

HIDDEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
"""Categories of characters that are not shown as they are: they move, hide or reverse the text around them."""


def shown(text: object, most: int = MOST_CHARACTERS) -> str:
    """Return a text as it can be shown: no control characters, and not too long."""
    whole = "" if text is None else str(text)
    cut = whole if len(whole) <= most else f"{whole[: most - 1]}…"
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(one) in HIDDEN else one for one in cut)


def moment(time_ns: int | None, *, seconds: bool = True) -> str:
    """Return a time as text, UTC; empty for None."""
    if time_ns is None:
        return ""
    return f"{_utc(time_ns):%Y-%m-%d %H:%M:%S}" if seconds else f"{_utc(time_ns):%Y-%m-%d %H:%M}"


def iso(time_ns: int) -> str:
    """Return a time in ISO 8601, UTC, to the microsecond, as charts and links take it."""
    return f"{_utc(time_ns):%Y-%m-%dT%H:%M:%S}.{time_ns // 1000 % 1_000_000:06d}"


def _utc(time_ns: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ns // NANOSECONDS_PER_SECOND, tz=dt.UTC)


def ago(seconds: float) -> str:
    """Return a length of time in the largest unit that fits: `40 s`, `12 min`, `3.5 h`, `208 d`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            value = seconds / length
            return f"{value:,.0f} {unit}" if unit == "min" or value >= 10 else f"{value:.1f} {unit}"
    return f"{seconds:.0f} s"


def amount(number: float | None, unit: str) -> str:
    """Return a number with a decimal prefix, such as `3.2 GB`; empty for None."""
    if number is None or not math.isfinite(number):
        return ""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"


def percent(ratio: float | None) -> str:
    """Return a ratio as whole percents; nothing for None."""
    return "" if ratio is None else f"{ratio:.0%}"


def sparkline(values: Sequence[float | None], *, width: float = 120, height: float = 24) -> str:
    """Return the points of an SVG polyline through values at equal distances, the lowest at the bottom.

    None leaves a gap; a line that moves by less than 2 % is drawn flat in the middle, for it would look like trouble.
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    flat = high - low < 0.02 * high
    step = width / max(len(values) - 1, 1)
    return " ".join(
        f"{number * step:.1f},{height / 2 if flat else height - 2 - (height - 4) * (value - low) / (high - low):.1f}"
        for number, value in enumerate(values)
        if value is not None
    )


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "shown": shown, "moment": moment, "iso": iso, "ago": ago, "amount": amount,
        "percent": percent, "sparkline": sparkline, "duration": terminal.duration, "cost": terminal.cost,
        "layout": terminal.layout, "headline": _headline, "loss": terminal.loss, "combined": _combined,
        "shown_lines": _shown_lines,
    }  # fmt: skip
    made.tests["silent"] = is_silent
    made.globals |= {"count": terminal.count, "version": __version__, "words_of_parts": PARTS.items()}
    return made


def _headline(incident: dict[str, Any]) -> str:
    return shown(terminal.headline(incident | {name: shown(incident[name]) for name in ("subject", "host")}), 240)


def _combined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | other


def _shown_lines(text: str) -> str:
    return "\n".join(shown(line, 4_000) for line in text.splitlines())


def asset(name: str) -> str:
    """Return the text of a file that pages load."""
    return ASSETS[name][0].read_text(encoding="utf-8")


def render(template: str, *, scripts: Iterable[str] = (), alone: bool = False, **values: Any) -> str:
    """Return a page.

    Parameters
    ----------
    scripts : names of the scripts that it needs, in order
    alone : whether the page is a file that needs no server: styles and scripts are in it, and links to other pages are
        left out
    """
    names = ["scheme.js", *scripts] if alone else list(scripts)
    inline = {name: asset(name) for name in names} if alone else {}
    return _templates().get_template(template).render(
        scripts=names,
        inline=inline,
        policy=_policy(inline.values()) if alone else None,
        style=asset("pages.css") if alone else None,
        alone=alone,
        **values,
    )  # fmt: skip


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
"""Content security policy of served pages: whatever a name may hold, a browser runs only our own files."""


def _policy(scripts: Iterable[str]) -> str:
    """Return the policy of a page that is a file: only these very scripts run, and nothing is loaded."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def data(value: Any) -> str:
    """Return JSON for a `<script type="application/json">` element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
