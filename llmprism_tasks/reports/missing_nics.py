"""Missing NICs: the warning about addresses that train with a job although the topology lacks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MOST_NAMED = 5
"""Number of missing addresses shown: enough to see which hosts they belong to."""


def unlisted_warning(unlisted: Mapping[str, Sequence[str]]) -> str:
    """Return the warning; `unlisted` has the missing addresses by job, for at least one job."""
    addrs = sorted({addr for of_job in unlisted.values() for addr in of_job})
    many = len(addrs) > 1
    count = f"{len(addrs):,} address{'es' * many}"
    return (
        f"{count} ({', '.join(addrs[:MOST_NAMED])}{', …' * (len(addrs) > MOST_NAMED)}) train{'s' * (not many)} with "
        f"{', '.join(sorted(unlisted))} but {'are' if many else 'is'} missing from the topology. The results of these "
        "jobs may be wrong. Add the addresses and their hosts to the topology, and run the windows again."
    )
