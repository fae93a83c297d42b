"""Columns of flow files: which of a file's columns hold the fields of a flow, and in which unit its times are.

A field's own name (`flow_start_ns`) comes first, then the names of IPFIX. `[columns]` in the settings and `--columns`
name a user's columns; a time's unit follows a colon, as in `first_seen:ms`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llmprism_tasks.contract.tables import FLOW_COLUMNS

TIMES = ("flow_start_ns", "flow_end_ns")
NANOSECONDS_IN = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Units of a column of times, and how many nanoseconds each is. ISO 8601 text is understood in all but `ns`."""


@dataclass(frozen=True)
class Origin:
    """Where a file has a field.

    Attributes
    ----------
    names : columns of the file, the first of which that is not empty has the value
    unit : of a time, one of `NANOSECONDS_IN`
    """

    names: tuple[str, ...]
    unit: str = "ns"


def _times(element: str) -> tuple[Origin, ...]:
    units = (("Nanoseconds", "ns"), ("Microseconds", "us"), ("Milliseconds", "ms"), ("Seconds", "s"))
    return tuple(Origin((f"{element}{name}",), unit) for name, unit in units)


def _addresses(element: str) -> tuple[Origin, ...]:
    both = (f"{element}IPv4Address", f"{element}IPv6Address")
    return (Origin(both), Origin(both[:1]), Origin(both[1:]))


IPFIX: Mapping[str, tuple[Origin, ...]] = {
    "flow_start_ns": _times("flowStart"),
    "flow_end_ns": _times("flowEnd"),
    "src_addr": _addresses("source"),
    "dst_addr": _addresses("destination"),
    "src_port": (Origin(("sourceTransportPort",)),),
    "dst_port": (Origin(("destinationTransportPort",)),),
    "protocol": (Origin(("protocolIdentifier",)),),
    "bytes": (Origin(("octetDeltaCount",)),),
    "packets": (Origin(("packetDeltaCount",)),),
}
"""IPFIX's names of each field; the first that a file has counts, so the finest unit of a time."""


def origins(columns: Collection[str], given: Mapping[str, str]) -> dict[str, Origin]:
    """Return where a file with some columns has each field that it has.

    Parameters
    ----------
    columns : names of the file's columns
    given : by field, the user's column, with the unit of a time after a colon
    """
    found = {}
    for field in (column.name for column in FLOW_COLUMNS):
        ways = [user_origin(given[field])] if field in given else [Origin((field,)), *IPFIX.get(field, ())]
        way = next((one for one in ways if set(one.names) <= set(columns)), None)
        if way is not None:
            found[field] = way
    return found


def user_origin(text: str) -> Origin:
    """Parse a user's name for a column, such as `bytes_total` or `first_seen:ms`."""
    name, colon, unit = text.rpartition(":")
    return Origin((name,), unit) if colon and unit in NANOSECONDS_IN else Origin((text,))
