"""Memory: what Polars' allocator does with what is free again, and how often Python looks for what might be."""

from __future__ import annotations

import gc
from collections.abc import MutableMapping

VARIABLE = "_RJEM_MALLOC_CONF"
"""Read by jemalloc, which Polars brings, when Polars is imported."""

KEEPING = "background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:-1"
"""Ten seconds instead of Polars' half: what one part of a platform frees, the next part needs a second later, and to
get it anew from the system costs 6 % of all time at 32,768 GPUs. Its peak grows by 0.2 GiB."""


def keep(environment: MutableMapping[str, str]) -> None:
    """Keep what is free for the stages of the next part, unless somebody has said otherwise; before Polars is there."""
    environment.setdefault(VARIABLE, KEEPING)


SELDOM = 500_000
"""Objects made, and not gone again, after which Python looks for garbage in circles, instead of 700: what is imported
is some hundred thousand, is never garbage, and was looked at for a tenth of a second."""


def seldom_look() -> None:
    """Let Python look for garbage in circles seldom: little of what a command makes is."""
    gc.set_threshold(SELDOM)
