"""Addresses: one spelling for each, so that flows and topology agree."""

from __future__ import annotations

import polars as pl

MAPPED = r"^(?:::|(?:0{1,4}:){5})(?i:ffff):([0-9]{1,3}(?:\.[0-9]{1,3}){3})$"
"""An IPv4 address written as an IPv6 one, as in `::ffff:10.0.0.1`; the macro `one_spelling` has the same."""


def one_spelling(addrs: pl.Series) -> pl.Series:
    """Return addresses with each IPv4 address in its own form, where it was written as an IPv6 one."""
    return addrs.str.replace(MAPPED, "$1")
