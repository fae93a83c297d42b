"""Exposure: ports that others can reach, and files with passwords that others can read."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from llmprism_tasks.reports.doctor.finding import Finding, judged

OUR_PROCESSES = ("airflow", "llmprism", "celery")
"""Words in the command lines of the processes that belong to a platform's llmprism."""


class Port(NamedTuple):
    """A port on which a process listens."""

    address: str
    number: int
    process: str


def ports(listening: Iterable[Port]) -> Iterator[Finding]:
    """Name the ports on which others than this machine can connect."""
    found = sorted(set(listening), key=lambda port: port.number)
    open_ones = [port for port in found if not ipaddress.ip_address(port.address).is_loopback]
    for port in open_ones:
        todo = "Have it listen on 127.0.0.1, or close the port to others by a firewall."
        yield judged("port", f"{port.number} on {port.address}, of {port.process}", warning=todo)
    if not open_ones:
        yield judged("ports", f"{len(found)} of airflow and llmprism, all on this machine alone")


def look_at_ports() -> Iterator[Finding]:
    """Check the processes whose command lines name one of ours."""
    listening = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if not any(word in command for word in OUR_PROCESSES):
            continue
        try:
            connections = process.net_connections("tcp")
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue  # another user's, or gone meanwhile
        listening += [
            Port(one.laddr.ip, one.laddr.port, f"process {process.pid} ({command[:60]})")
            for one in connections
            if one.status == psutil.CONN_LISTEN
        ]
    yield from ports(listening)


def secrets(modes: Mapping[Path, int]) -> Iterator[Finding]:
    """Name the files with passwords that others than their owner can read.

    Parameters
    ----------
    modes : the rights of each file, as of `os.stat`
    """
    for path, mode in sorted(modes.items()):
        readable = bool(mode & (stat.S_IRWXG | stat.S_IRWXO))
        todo = f"Run chmod 600 {path}." if readable else ""
        yield judged("password file", f"{path}, {stat.filemode(mode)}", problem=todo)


def look_at_secrets(environment: Mapping[str, str], home: Path | None) -> Iterator[Finding]:
    """Check the files that hold passwords, by their usual names and by the variables that name them.

    Parameters
    ----------
    home : Airflow's folder, if it is used
    """
    named = [
        Path(value)
        for name, value in environment.items()
        if (name.startswith("LLMPRISM_") and name.endswith("_FILE"))
        or name in ("PGPASSFILE", "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE")
    ]
    usual = [] if home is None else [home / "simple_auth_manager_passwords.json.generated", home / "airflow.cfg"]
    yield from secrets({path: path.stat().st_mode for path in {*named, *usual} if path.is_file()})
