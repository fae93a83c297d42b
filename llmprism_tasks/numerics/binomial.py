"""How probable it is that something happens so often by chance: tails of the binomial distribution."""

from __future__ import annotations

import math

import polars as pl


def tail(count: int, trials: int, probability: float) -> float:
    """Return the probability of at least `count` successes in independent trials, summed term by term."""
    if not 0 < probability < 1:
        return float(count <= trials * probability)
    # In logarithms: of a thousand trials the binomial coefficients are beyond floating-point numbers.
    succeeded, failed, every = math.log(probability), math.log1p(-probability), math.lgamma(trials + 1)
    return math.fsum(
        math.exp(every - math.lgamma(n + 1) - math.lgamma(trials - n + 1) + n * succeeded + (trials - n) * failed)
        for n in range(count, trials + 1)
    )


def tail_bound(count: pl.Expr, trials: pl.Expr, probability: pl.Expr) -> pl.Expr:
    """Return an upper bound of `tail` for each row: exp(-trials * KL(count / trials || probability)).

    H. Chernoff, "A Measure of Asymptotic Efficiency", Ann. Math. Stat. 23 (1952). 1 where there are no more successes
    than expected.
    """
    ratio = count / trials
    failing = pl.when(ratio < 1).then((1 - ratio) * ((1 - ratio) / (1 - probability)).log()).otherwise(0.0)
    divergence = ratio * (ratio / probability).log() + failing
    return pl.when(ratio > probability).then((-trials * divergence).exp()).otherwise(1.0)


def any_value_bound(count: int, draws: int, values: int) -> float:
    """Return an upper bound of the probability that any of several equally probable values is drawn `count` times.

    The union bound: one value is drawn in `count` given draws with probability `values ** -count`; there are `values`
    of them, and as many choices of the draws as the binomial coefficient says.
    """
    return math.comb(draws, count) * float(values) ** (1 - count)
