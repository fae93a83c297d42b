"""SIGTERM, by which systemd, Kubernetes and `timeout` ask a command to end."""

from __future__ import annotations

import signal
import threading
from typing import NoReturn

_asked_to_end = threading.Event()


class Terminated(KeyboardInterrupt):
    """Somebody asked this process to end, as systemd and Kubernetes do."""


def terminate(*_: object) -> NoReturn:
    """Handle the signal: raise Terminated, wherever the process is."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two, and what is tidied up is not to be disturbed
    _asked_to_end.set()
    raise Terminated


def was_asked_to_end() -> bool:
    """Return whether the signal came: a library may drop the exception, and fail for another reason or go on."""
    return _asked_to_end.is_set()


def end_if_asked() -> None:
    """Raise Terminated again if the signal came: the first time may have been in a callback, where it is lost."""
    if was_asked_to_end():
        raise Terminated
