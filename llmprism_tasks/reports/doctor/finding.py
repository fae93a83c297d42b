"""A finding: what one check saw, how it is judged, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, PROBLEM = "ok", "warning", "problem"
"""All is well; something will hurt later or hides something; something does not work or is open to others."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report; `todo` is empty when all is well."""

    check: str
    state: str
    found: str
    todo: str = ""


def judged(check: str, found: str, *, problem: str = "", warning: str = "") -> Finding:
    """Return a finding: a problem or a warning if there is something to do about it, else ok."""
    state = PROBLEM if problem else WARNING if warning else OK
    return Finding(check, state, found, problem or warning)
