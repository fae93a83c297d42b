"""Secrets: a password is taken out of the location of a warehouse, and read from a file rather than an argument.

A location ends in messages, logs and file names, an argument in the list of processes that every user of the machine
can read. So neither ever holds a password: a location that comes with one is split when the settings are read.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from llmprism_tasks.contract.errors import SettingsError

WITH_SERVER = re.compile(r"ducklake:(postgres|mysql):", re.IGNORECASE)
"""How the location of a DuckLake begins whose catalog is in a database server; any other is a path."""
ALONE = re.compile(r"(postgres|postgresql|mysql|md|motherduck):", re.IGNORECASE)
"""How the location of a database begins in which no warehouse can be; as a path it would be a file of that name."""
IN_WORDS = re.compile(
    r"(?<![^\s?&:])(?:password|passwd)\s*=\s*(?:'(?P<quoted>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s&]*))[\s&]*"
)
IN_ADDRESS = re.compile(r"(?<=://)(?P<user>[^:/@\s]*):(?P<password>[^/\s]*)@")


def split_location(location: str) -> tuple[str, str]:
    """Return a warehouse's location without the password for its catalog, and the password, empty if it has none.

    It is understood as PostgreSQL does: `password=…` among other words, or `postgresql://user:password@host/name`.
    """
    if not WITH_SERVER.match(location):
        return location, ""
    for form in (IN_WORDS, IN_ADDRESS):
        found = form.search(location)
        if found is None:
            continue
        if form is IN_ADDRESS:
            return form.sub(r"\g<user>@", location), urllib.parse.unquote(found["password"])
        of_address = "://" in location
        password = re.sub(r"\\(.)", r"\1", found["quoted"] if found["quoted"] is not None else found["bare"])
        return form.sub("", location).rstrip(" ?&"), urllib.parse.unquote(password) if of_address else password
    return location, ""


def read_secret(file: str, variable: str) -> str:
    """Return what a file holds that a variable names, without the line's end.

    Raises
    ------
    SettingsError : it cannot be read, or is empty
    """
    try:
        found = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
        raise _unreadable(variable, file, f"that cannot be read ({reason})") from error
    if not found:
        raise _unreadable(variable, file, "that is empty")
    return found


def refuse_in_arguments(arguments: Mapping[str, str], secrets: frozenset[tuple[str, str]]) -> None:
    """Refuse secrets that were given on the command line, where every user of the machine can read them.

    Parameters
    ----------
    arguments : `section.name` to text
    secrets : section and name of each secret setting

    Raises
    ------
    SettingsError : there is one; the message does not repeat it
    """
    for key, value in arguments.items():
        section, _, name = key.partition(".")
        if key == "places.warehouse" and split_location(value)[1]:
            section, name = "warehouse", "catalog_password"
        if (section, name) in secrets and value:
            variable = f"LLMPRISM_{section}__{name}".upper()
            raise SettingsError(
                found=f"a secret on the command line ({section}.{name}), where the list of processes shows it",
                expected="secrets in variables, files or the settings file",
                todo=f"Set {variable}, or let {variable}_FILE name a file that holds it. Replace the secret: "
                "it was shown.",
            )


def _unreadable(variable: str, file: str, what: str) -> SettingsError:
    return SettingsError(
        found=f"variable {variable}, which names a file {file} {what}",
        expected="a file that holds the secret and nothing else",
        todo="Correct the path or the file's permissions.",
    )
