"""Logarithms and exponentials of many numbers at a time, in loops that compile to vector instructions.

A loop that calls the C library's `log` or `exp` takes one number after another, some 6 ns each; these take several at
once, 1 to 3 ns each, and are right to the last digit or two.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import vector_subroutine
from llmprism_tasks.numerics.robust import Floats, Integers

# A positive number of 64 bits is m * 2 ** e, and its bits as a whole number are e * 2 ** 52 plus those of m.
MANTISSA_BITS = 52
SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)  # those of sqrt(1/2), from where m is counted, so that m is close to 1
EXPONENT_OF_ONE = 1023
LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with so few digits that its multiples by exponents are exact (fdlibm, Sun Microsystems).
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LEAST_EXPONENT = -700.0
"""Exponentials of less are not asked for: below -708 they have fewer digits."""


@vector_subroutine
def logarithms(bits: Integers, room_bits: Integers, room: Floats, out: Floats, count: int) -> None:
    """Write the natural logarithms of positive numbers to another array.

    With s = (m - 1) / (m + 1), log m = 2 (s + s^3 / 3 + s^5 / 5 + ...), where s is below 0.172.

    Parameters
    ----------
    bits : shape (n,), a view of the numbers as whole ones; no number is below 2.3e-308
    room, room_bits : shape (n,), two views of an array to reckon in
    out : shape (n,), what is written
    count : how many, from the beginning
    """
    for i in range(count):
        exponent = (bits[i] - SQRT_HALF_BITS) >> MANTISSA_BITS
        room_bits[i] = bits[i] - (exponent << MANTISSA_BITS)
        out[i] = exponent
    for i in range(count):
        s = (room[i] - 1.0) / (room[i] + 1.0)
        q = s * s
        series = 2 / 17 + q * (2 / 19)
        series = 2 / 13 + q * (2 / 15 + q * series)
        series = 2 / 9 + q * (2 / 11 + q * series)
        series = 2 / 5 + q * (2 / 7 + q * series)
        series = 2.0 + q * (2 / 3 + q * series)
        out[i] = out[i] * LN2_HIGH + (out[i] * LN2_LOW + s * series)


@vector_subroutine
def exponentials(values: Floats, room_bits: Integers, room: Floats, out: Floats, count: int) -> None:
    """Write the exponentials of numbers from `LEAST_EXPONENT` to its opposite to another array.

    With x = k ln 2 + r and r within ln 2 / 2 of 0, exp x = 2 ** k (1 + r + r^2 / 2! + r^3 / 3! + ...).

    Parameters are those of `logarithms`.
    """
    for i in range(count):
        k = np.floor(values[i] * LOG2_E + 0.5)
        r = (values[i] - k * LN2_HIGH) - k * LN2_LOW
        room_bits[i] = (np.int64(k) + EXPONENT_OF_ONE) << MANTISSA_BITS
        series = 1 / 479001600 + r * (1 / 6227020800)
        series = 1 / 3628800 + r * (1 / 39916800 + r * series)
        series = 1 / 40320 + r * (1 / 362880 + r * series)
        series = 1 / 720 + r * (1 / 5040 + r * series)
        series = 1 / 24 + r * (1 / 120 + r * series)
        series = 1 / 2 + r * (1 / 6 + r * series)
        out[i] = 1.0 + r * (1.0 + r * series)
    for i in range(count):
        out[i] *= room[i]
