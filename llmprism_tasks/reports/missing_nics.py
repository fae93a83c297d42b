"""What is said where addresses that the topology lacks train with those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHOWN = 5
"""Addresses shown that the topology lacks: enough to see whose they are."""


def unlisted_warning(unlisted: Mapping[str, Sequence[str]]) -> str:
    """Return the sentences that warn of them; `unlisted` are the addresses by job, of one job at least."""
    addrs = sorted({addr for of_job in unlisted.values() for addr in of_job})
    count = f"{len(addrs):,} address{'es' * (len(addrs) > 1)}"
    return (
        f"not in the topology, but training with {', '.join(sorted(unlisted))}: {count} "
        f"({', '.join(addrs[:SHOWN])}{', …' * (len(addrs) > SHOWN)}). What is said of these jobs may be wrong. "
        "Add the addresses to the topology, with their hosts, and run the windows again."
    )
