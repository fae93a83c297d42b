"""The commands about pages: serve them on this machine, write one to a file, mute and unmute an incident."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from llmprism_tasks.cli import output
from llmprism_tasks.contract.errors import InputError

if TYPE_CHECKING:
    from llmprism_tasks.settings import Settings
    from llmprism_tasks.warehouse.connect import Warehouse

LOOPBACK = "127.0.0.1"
"""The pages ask nobody for a password, so they are shown to this machine alone."""


def serve(warehouse: Warehouse, settings: Settings, arguments: argparse.Namespace) -> None:
    """Serve the pages until interrupted.

    Raises
    ------
    InputError : the port is taken
    """
    import uvicorn

    from llmprism_tasks.reports.pages.app import local_app

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, arguments.port))
            listening.listen()  # before the address is told, so that whoever reads it can use it
        except (OSError, OverflowError) as error:
            raise InputError(
                found=f"port {arguments.port}, which cannot be used ({error})",
                expected="a free port",
                todo="Choose another one with --port, or --port 0 for any.",
            ) from error
        app = local_app(lambda: warehouse, user=_user() or "somebody", settings=settings)
        output.say(f"http://{LOOPBACK}:{listening.getsockname()[1]}/ until Ctrl-C")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def refuse_ignored_options(arguments: argparse.Namespace) -> None:
    """Refuse options of `llmprism report` that would be ignored.

    Raises
    ------
    InputError : what only a page shows without a page, what only a text shows with one, or two ranges
    """
    names = {"--last": "last", "--from": "from_", "--to": "to", "--picture": "picture"}
    names |= {"--incident": "incident", "--job": "job"}
    given = {option: getattr(arguments, name) is not None for option, name in names.items()}
    given |= {"--evidence": arguments.evidence, "--format json": arguments.format == "json"}
    paged = arguments.html is not None
    asked = [option for option in ("--incident", "--job", "--last", "--from", "--to") if given[option]]
    if asked and not paged:
        raise InputError(
            found=f"{', '.join(asked)} without --html",
            expected="--html FILE with it",
            todo="Add --html FILE for a page of it; without, the report is of the whole warehouse.",
        )
    ranges, texts = ("--from", "--to"), ("--format json", "--evidence", "--picture")
    for one, there, others in (("--html", paged, texts), ("--last", given["--last"], ranges)):
        both = [option for option in others if there and given[option]]
        if both:
            raise InputError(
                found=f"{one} with {' and '.join(both)}", expected="one of them", todo="Leave one of them out."
            )


def write_page(warehouse: Warehouse, settings: Settings, arguments: argparse.Namespace) -> None:
    """Write the page of an incident, a job or a range to one file that needs no server."""
    from llmprism_tasks.reports.pages import incident, job, now

    given = {"last": arguments.last, "from": arguments.from_, "to": arguments.to}
    query = {name: value for name, value in given.items() if value}
    if arguments.incident is not None:
        page = incident.show(warehouse, {"id": arguments.incident}, now_ns=time.time_ns(), alone=True)
    elif arguments.job is not None:
        page = job.show(warehouse, query | {"id": arguments.job}, now_ns=time.time_ns(), alone=True)
    else:
        page = now.show(warehouse, query, now_ns=time.time_ns(), alone=True, settings=settings)
    arguments.html.write_text(page, encoding="utf-8")
    output.say(f"Written: {arguments.html}, {arguments.html.stat().st_size / 1e3:,.0f} kB")


def mute(warehouse: Warehouse, arguments: argparse.Namespace) -> None:
    """Send no message about an incident until a time."""
    from llmprism_tasks.reports.pages.app import until
    from llmprism_tasks.reports.pages.markup import moment
    from llmprism_tasks.warehouse.bookkeeping import notifications

    now_ns = time.time_ns()
    until_ns = until(arguments.until, now_ns)
    who = _user()
    notifications.mute(
        warehouse, arguments.incident, now_ns=now_ns, until_ns=until_ns, reason=arguments.reason, muted_by=who
    )
    output.say(f"No message about {arguments.incident} until {moment(until_ns)} UTC.")


def unmute(warehouse: Warehouse, arguments: argparse.Namespace) -> None:
    """Send messages about an incident again."""
    from llmprism_tasks.warehouse.bookkeeping import notifications

    ended = notifications.unmute(warehouse, arguments.incident, now_ns=time.time_ns())
    output.say(f"{arguments.incident} was not muted." if not ended else f"{arguments.incident} is not muted any more.")


def _user() -> str | None:
    with suppress(OSError, KeyError):  # a container may run as a user without a name
        return getpass.getuser()
    return os.environ.get("USER")
