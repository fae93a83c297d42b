"""Ranks that go on at once keep their leads from one exchange to the next; ranks that wait for its end do not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, flows

from llmprism_tasks.stages.diagnosis.own_work.kept_leads import kept_leads
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_gaps import exchanges
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import to_nic_arrays
from llmprism_tasks.stages.diagnosis.own_work.own_work import own_work

RANKS = "abcd"
BUCKETS = 8
STEP_MS, BUCKET_MS, TRANSFER_MS = 1000.0, 80.0, 20.0
NICS = pl.DataFrame({"job_id": "j", "addr": list(RANKS), "component": 0})


def come(
    rng: np.random.Generator,
    slow: np.ndarray,
    varies: float,
    *,
    beside: bool,
    met: int = BUCKETS,
    together: float = 0.0,
) -> Iterator[tuple[np.ndarray, float]]:
    """Return when each rank comes to each exchange of a step, and when the exchange begins; all wait for the end of the
    one with the number `met`. All vary `together`, too."""
    at, free = np.zeros(len(RANKS)), 0.0
    for bucket in range(BUCKETS):
        at = at + BUCKET_MS * slow * rng.normal(1, varies, len(RANKS)) * rng.normal(1, together)
        begins = max(at.max(), free)
        yield at, begins
        free = begins + TRANSFER_MS
        if not beside or bucket == met:
            at = np.full(len(RANKS), free)


def job(
    count: int,
    *,
    beside: bool,
    seed: int = 5,
    slower: float = 0.1,
    varies: float = 0.03,
    parts_ms: float = 1,
    met: int = BUCKETS,
    together: float = 0.0,
) -> pl.DataFrame:
    """Return a job that reduces buckets in a ring: who comes first pushes a little, the rest moves with the last.

    Rank `b` is slower by a ratio, and all vary from exchange to exchange. A wait of less than `parts_ms` parts no
    record.
    """
    rng, rows = np.random.default_rng(seed), list[Row]()
    for step in range(count):
        for at, begins in come(rng, np.array([1, 1 + slower, 1, 1]), varies, beside=beside, met=met, together=together):
            for i, src in enumerate(RANKS):
                since, dst = step * STEP_MS, RANKS[(i + 1) % len(RANKS)]
                is_seen = begins - at[i] > parts_ms
                if is_seen:
                    rows.append((since + at[i], since + at[i] + 0.1, src, dst, MB))
                rows.append((since + (begins if is_seen else at[i]), since + begins + TRANSFER_MS, src, dst, 50 * MB))
    return flows(rows).with_columns(job_id=pl.lit("j"), kind=pl.lit("dp"))


def steps(count: int) -> pl.DataFrame:
    numbers = pl.DataFrame({"step_index": range(count)}, schema={"step_index": pl.Int64})
    start = pl.col("step_index") * int(STEP_MS * MS) + WINDOW.start_ns
    spans = numbers.with_columns(start_ns=start, end_ns=start + int(STEP_MS * MS), current=True)
    return NICS.select("job_id", "addr").join(spans, how="cross")


def share_kept(moved: pl.DataFrame, count: int) -> float:
    """Return to which share of the exchanges after one at which a rank waited it brought its lead."""
    seen = to_nic_arrays(moved, steps(count))
    every = np.ones(seen.jobs.len(), np.bool_)
    found = exchanges(seen.transfers, seen.numbers, every, early=0.1, piped=-1, sent_only=True)
    after = (found.step == np.roll(found.step, 1)) & (np.roll(found.waited, 1) > 0)
    return float((kept_leads(found, seen)[after] > 0).mean())


@pytest.mark.parametrize("seed", range(5))
def test_leads_are_kept_where_computing_goes_on_beside_the_exchanges(seed: int) -> None:
    assert share_kept(job(12, beside=True, seed=seed), 12) > 0.7
    assert share_kept(job(12, beside=False, seed=seed), 12) == 0


@pytest.mark.parametrize("seed", range(5))
def test_leads_are_kept_where_all_ranks_compute_for_longer_at_times(seed: int) -> None:
    assert share_kept(job(24, beside=True, seed=seed, together=0.1), 24) > 0.7


def test_a_wait_that_is_seen_in_one_of_two_steps_alone_has_not_grown_by_all_of_it() -> None:
    """Leads of 1.6, 3.2, 4.8, 6.4 ms and so on vary by a third of a millisecond, and are seen from about 5 ms on."""
    assert share_kept(job(12, beside=True, slower=0.02, varies=0.002, parts_ms=4.8), 12) > 0.7


def test_few_comparisons_may_agree_by_chance() -> None:
    assert share_kept(job(1, beside=True), 1) == 0
    assert share_kept(job(2, beside=True).filter(pl.col("src_addr") == "a"), 2) == 0


@pytest.mark.parametrize("parts_ms", [1, 1000])
@pytest.mark.parametrize(("beside", "met"), [(True, BUCKETS), (True, 2), (True, 4), (False, BUCKETS)])
def test_a_rank_that_is_a_tenth_slower_has_a_tenth_more_work(beside: bool, met: int, parts_ms: float) -> None:
    """Also where all wait for each other after some of the exchanges, and where no wait parts a record."""
    found = own_work(job(24, beside=beside, met=met, parts_ms=parts_ms), steps(24), NICS, sent_only=True)
    excess = dict(found.group_by("addr").agg(pl.col("excess").median()).iter_rows())
    assert excess["b"] == pytest.approx(0.1, abs=0.04)
    assert [excess[other] for other in "acd"] == pytest.approx([0, 0, 0], abs=0.04)


@pytest.mark.parametrize("beside", [True, False])
def test_where_leads_are_kept_work_is_the_sum_of_gaps_and_leads(*, beside: bool) -> None:
    found = own_work(job(24, beside=beside), steps(24), NICS, sent_only=True)
    assert found.select((pl.col("pace") == pl.col("own_ns")).all()).item() == beside
