"""What the command `llmprism` does with a command line: the exit code, signals, messages on standard error.

Exit codes: 0 done, 1 trying again cannot help, 2 wrong usage, 75 trying again later may help, 130 interrupted, 143
terminated (SIGTERM). The last two leave neither a process nor temporary files behind.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from llmprism_tasks.cli import commands, signals
from llmprism_tasks.cli.arguments import parser
from llmprism_tasks.cli.output import say
from llmprism_tasks.contract import system_errors
from llmprism_tasks.contract.errors import LlmprismError, TransientError
from llmprism_tasks.contract.visible_text import shown

PERMANENT, TRY_LATER, INTERRUPTED, TERMINATED = 1, os.EX_TEMPFAIL, 128 + signal.SIGINT, 128 + signal.SIGTERM

BEGINS_AGAIN = "What was written is complete; the same command begins again with the first window."
FINISHES = "What was written is complete; run the same command to finish."

READING = (commands.report, commands.serve, commands.sql, commands.evaluate, commands.doctor, commands.settings)
"""Commands that write nothing to the warehouse."""


def run() -> NoReturn:
    """Run this process's command line, and end the process."""
    signal.signal(signal.SIGTERM, signals.terminate)  # here alone: whoever imports this may have a handler of its own
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin for half a second of processor time, unused
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code, after saying on standard error what went wrong."""
    command: Callable[[argparse.Namespace], None] | None = None
    try:
        arguments = parser().parse_args(argv)
        command = arguments.command
        with _logging_to_stderr(verbose=arguments.verbose), system_errors.named():
            command(arguments)
            sys.stdout.flush()  # here, where a reader that has gone, or a full disk, is noticed
    except LlmprismError as error:
        say(f"llmprism: {error}", stderr=True)
        try:
            sys.stdout.flush()
        except OSError:
            _give_output_up()
        return TRY_LATER if isinstance(error, TransientError) else PERMANENT
    except (KeyboardInterrupt, RuntimeError, ImportError) as error:  # DuckDB, at work or imported, raises one from it
        why = error if isinstance(error, KeyboardInterrupt) else error.__cause__
        if not isinstance(why, KeyboardInterrupt):
            raise
        return _ended(TERMINATED if isinstance(why, signals.Terminated) else INTERRUPTED, command)
    except BrokenPipeError:  # the reader, such as `head`, had enough
        _give_output_up()
    except Exception:
        if not signals.was_asked_to_end():
            raise
        # A library that was being imported may drop the exception of the signal, and fail for another reason.
        return _ended(TERMINATED, command)
    return 0


def _ended(code: int, command: Callable[[argparse.Namespace], None] | None) -> int:
    """Say that the process was asked to end, and what became of its work; returns the exit code."""
    rest = "" if command in READING else f" {BEGINS_AGAIN if command is commands.analyze else FINISHES}"
    say(f"llmprism: {'terminated' if code == TERMINATED else 'interrupted'}.{rest}", stderr=True)
    return code


def _give_output_up() -> None:
    """Drop what could not be written: it would be tried again, and fail again, when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Formatter(logging.Formatter):
    """Shows control characters, such as in the name of a file, instead of sending them to the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return str(shown(super().format(record)))


@contextlib.contextmanager
def _logging_to_stderr(*, verbose: bool) -> Iterator[None]:
    """Log to standard error, errors with where they happened if verbose, and leave the process's logging as it was."""
    handler, own = logging.StreamHandler(), logging.getLogger("llmprism_tasks")
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    level = own.level
    own.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    except LlmprismError:
        own.info("This is where it happened:", exc_info=True)
        raise
    finally:
        logging.getLogger().removeHandler(handler)
        own.setLevel(level)
