"""Remembered: what several stages of one process work out of the same flows is worked out once.

Stages are pure functions, so the result for the frames of a moment ago need not be computed again. A result is kept for
as long as somebody holds the flows it was made of, and only the latest few of a function.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import polars as pl

P = ParamSpec("P")
R = TypeVar("R")

KEPT = 2
"""Results of a function that are kept: stages come one after another, and most want what the one before them did."""

_kept_of_all: list[list[Any]] = []


def remembered(function: Callable[Concatenate[pl.DataFrame, P], R]) -> Callable[Concatenate[pl.DataFrame, P], R]:
    """Keep the latest results of a pure function of flows.

    Calls are alike when their flows are the same object, and all other arguments are equal.
    """
    kept: list[tuple[weakref.ref[pl.DataFrame], tuple[object, ...], R]] = []
    _kept_of_all.append(kept)

    @functools.wraps(function)
    def call(flows: pl.DataFrame, /, *args: P.args, **kwargs: P.kwargs) -> R:
        others = (*args, *sorted(kwargs.items()))
        for held, known, result in kept:
            if held() is flows and _alike(known, others):
                return result
        result = function(flows, *args, **kwargs)
        kept[KEPT - 1 :] = []
        kept.insert(0, (weakref.ref(flows, lambda gone: _forget(kept, gone)), others, result))
        return result

    return call


def forget() -> None:
    """Forget all results: for the last stage, once it needs them no more, since of many flows they are gibibytes."""
    for kept in _kept_of_all:
        kept.clear()


def _forget(kept: list[Any], gone: object) -> None:
    kept[:] = [entry for entry in kept if entry[0] is not gone]


def _alike(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, pl.DataFrame) and isinstance(other, pl.DataFrame):
        return one is other or (one.schema == other.schema and one.equals(other))
    return type(one) is type(other) and one == other
