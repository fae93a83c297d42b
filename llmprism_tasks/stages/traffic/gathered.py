"""Gathered: rows of a frame by their places."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl


def gathered(frame: pl.DataFrame, places: npt.NDArray[np.int32]) -> pl.DataFrame:
    """Return rows at some places, from 0, any of them several times: `frame[places]`, in half of the time.

    Polars would look for negative places, and write all of them anew without a sign.
    """
    return frame[pl.Series(places.astype(np.int32, copy=False).view(np.uint32))]
