"""Errors of llmprism: each message says what was found, what was expected and what to do."""

from __future__ import annotations


class LlmprismError(Exception):
    """Base of all errors that llmprism raises itself; the message has three parts.

    Parameters
    ----------
    found : what was found, and where (file, position, window, table or setting)
    expected : what would have been right
    todo : what the reader can do about it

    The parts are kept as attributes, also after pickling (Airflow passes errors between processes).
    """

    def __init__(self, *, found: str, expected: str, todo: str) -> None:
        self.found, self.expected, self.todo = found, expected, todo
        super().__init__(f"{found}; expected {expected}. {todo}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.found, self.expected, self.todo)


def _rebuild(kind: type[LlmprismError], found: str, expected: str, todo: str) -> LlmprismError:
    return kind(found=found, expected=expected, todo=todo)


class PermanentError(LlmprismError):
    """Trying again with the same input cannot help."""


class TransientError(LlmprismError):
    """Trying again later may help."""


class InputError(PermanentError):
    """A file of flows or topology cannot be read at all, or lacks a required column."""


class RequestError(InputError):
    """A request to the pages that cannot be read, whatever the warehouse holds."""


class SettingsError(PermanentError):
    """A setting is unknown, unparsable or out of its range."""


class ContractError(PermanentError):
    """Rows break the data contract: a stage's result, or a window that a critical expectation stopped."""


class WarehouseBusy(TransientError):
    """Another process held the warehouse for longer than `warehouse.lock_wait_s`."""


class ReplacedMeanwhileError(TransientError):
    """Another run of a window replaced its rows while this one worked with them."""


class WarehouseGone(TransientError):
    """The warehouse was removed or replaced while it was in use."""


class QueryTooLong(TransientError):
    """A page's queries took longer than a page may keep the warehouse from a run."""
