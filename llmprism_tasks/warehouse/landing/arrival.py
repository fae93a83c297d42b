"""Arrival: whether a window's flows have all arrived, and what it is landed in spite of."""

from __future__ import annotations

import logging
from pathlib import Path

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources import flows as sources
from llmprism_tasks.sources.pattern import MAGIC
from llmprism_tasks.warehouse.landing import columnar
from llmprism_tasks.warehouse.landing.intake import Intake
from llmprism_tasks.warehouse.landing.records import Staging, starts_after

logger = logging.getLogger(__name__)

NOT_ARRIVED = "flows may not all have arrived: there was no file for the window, or no record at or after its end"
NO_NEXT_FILE = (
    "flows may not all have arrived: there was no file for the next window, which may hold records of this one"
)


def flows_arrived(window: Window, flows: str, intake: Intake | None = None) -> bool:
    """Return whether a window's flows have all arrived, as far as files show it.

    For a pattern, they have if the file named for the window exists and is quiet and, if the next file is waited for,
    that one, too. For a file, folder or glob, they have if a record starts at or after the window's end.
    """
    intake = intake or Intake()
    own = sources.files_of(window, flows)
    if own is not None:
        following = sources.files_of(window.shifted(1), flows) or []
        files = {file.path for file in (*own, *(following if intake.waits_for_next else []))}
        there = bool(own) and (bool(following) or not intake.waits_for_next)
        return there and all(intake.is_quiet(path) for path in files)
    if not any(sign in flows for sign in MAGIC) and not Path(flows).exists():
        return False
    files_there = sources.find(flows, length_ns=window.length_ns)
    try:
        return starts_after(files_there, window.end_ns, intake.columns)
    except InputError:  # landing will say so, or try again if the file is still being written
        return True


def unusual(
    window: Window,
    flows: str,
    staged: Staging | columnar.Sound,
    intake: Intake,
    *,
    later_records: bool | None,
    was_there: bool = False,
) -> list[str]:
    """Return what a window is landed in spite of: files that have not come, or are not finished.

    Parameters
    ----------
    later_records : whether a record starts at or after the window's end; None if that is not known
    was_there : whether the window was landed before, from files that are gone
    """
    own, said = sources.files_of(window, flows), []
    if own is None:
        if not (flows_arrived(window, flows, intake) if later_records is None else later_records):
            said.append(NOT_ARRIVED)
    elif not own:
        said += [] if was_there else [NOT_ARRIVED]
    elif not was_there and intake.waits_for_next and not sources.files_of(window.shifted(1), flows):
        said.append(NO_NEXT_FILE)
    holding = [path for path, windows in staged.parts.items() if window.start_ns in windows]
    unfinished = sorted(
        path
        for path in {*holding, *(file.path for file in own or ())}
        if Path(path).suffix.lower() in sources.PLAIN_TEXT  # others can only be read when they are whole
        and not (intake.is_quiet(path) and _ends_in_a_line(path, intake))
    )
    texts = {*holding, *(file.path for file in own or ())} - {*unfinished}
    if cut := sorted(path for path in texts if not sources.ends_in_a_line(path)):
        said.append(f"ends without a line feed, so that its last record may be cut: {', '.join(cut)}")
    if unfinished:
        said.append(f"still being written when it was read: {', '.join(unfinished)}")
    for reason in said:
        logger.info("window %s: %s", window, reason)
    return said


def _ends_in_a_line(path: str, intake: Intake) -> bool:
    """Return whether a young text is complete to its last line; nobody writes on in an old one."""
    return not intake.is_young(path) or sources.ends_in_a_line(path)
