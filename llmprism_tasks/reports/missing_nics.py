"""Missing NICs: the warning about addresses that train with a job although the topology lacks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHOWN = 5
"""Number of missing addresses shown: enough to see which hosts they belong to."""


def unlisted_warning(unlisted: Mapping[str, Sequence[str]]) -> str:
    """Return the warning; `unlisted` has the missing addresses by job, for at least one job."""
    addrs = sorted({addr for of_job in unlisted.values() for addr in of_job})
    count = f"{len(addrs):,} address{'es' * (len(addrs) > 1)}"
    return (
        f"not in the topology, but training with {', '.join(sorted(unlisted))}: {count} "
        f"({', '.join(addrs[:SHOWN])}{', …' * (len(addrs) > SHOWN)}). What is said of these jobs may be wrong. "
        "Add the addresses to the topology, with their hosts, and run the windows again."
    )
