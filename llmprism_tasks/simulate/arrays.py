"""The types of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Reals = NDArray[np.float64]
