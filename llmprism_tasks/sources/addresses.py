"""Addresses: which texts are one, and one spelling for each, so that flows and topology agree."""

from __future__ import annotations

import polars as pl

MAPPED = r"^(?:::|(?:0{1,4}:){5})(?i:ffff):([0-9]{1,3}(?:\.[0-9]{1,3}){3})$"
"""An IPv4 address written as an IPv6 one, as in `::ffff:10.0.0.1`; the macro `one_spelling` has the same."""

_OCTET, _GROUP = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])", "[0-9A-Fa-f]{1,4}"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_IPV6 = (
    f"(?:{_GROUP}:){{7}}{_GROUP}",
    f"(?:{_GROUP}:){{1,7}}:",
    *(f"(?:{_GROUP}:){{1,{7 - after}}}(?::{_GROUP}){{1,{after}}}" for after in range(1, 7)),
    f":(?::{_GROUP}){{1,7}}",
    "::",
    f"(?:{_GROUP}:){{6}}{_IPV4}",
    f"::(?:{_GROUP}:){{0,5}}{_IPV4}",
    *(f"(?:{_GROUP}:){{1,{5 - after}}}:(?:{_GROUP}:){{0,{after}}}{_IPV4}" for after in range(5)),
)
ADDRESS = f"^(?:{_IPV4}|(?:{'|'.join(_IPV6)})(?:%[0-9A-Za-z_]+)?)$"
"""An IPv4 or IPv6 address, also with a zone (`fe80::1%eth0`), for DuckDB's and Polars' engines.

Both read a text once, however long the expression is.
"""


def one_spelling(addrs: pl.Series) -> pl.Series:
    """Return addresses with each IPv4 address in its own form, where it was written as an IPv6 one."""
    return addrs.str.replace(MAPPED, "$1")
