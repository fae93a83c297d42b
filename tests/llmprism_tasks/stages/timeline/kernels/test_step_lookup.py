"""A transfer is placed in the first span of its owner that ends no earlier than it starts, once per series."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.timeline.kernels.step_lookup import Series, Spans, placed

Span = tuple[int, int]


def spans_of(owners: list[list[Span]]) -> Spans:
    flat = [span for spans in owners for span in spans]
    offsets = np.cumsum([0, *map(len, owners)]).astype(np.int64)
    by_end = [i for a, b in pairwise(offsets) for i in sorted(range(a, b), key=lambda i: flat[i][1])]
    starts, ends = (np.array([span[i] for span in flat], dtype=np.int64) for i in (0, 1))
    return Spans(starts, ends, np.array(by_end, dtype=np.int64), offsets)


def found(
    transfers: list[Span], series: list[tuple[int, int, int]], owners: list[list[Span]]
) -> list[tuple[int, int, int]]:
    """Return (span, transfer, series) of each row."""
    starts, ends = (np.array([transfer[i] for transfer in transfers], dtype=np.int64) for i in (0, 1))
    columns = (np.array([one[i] for one in series], dtype=np.int64) for i in range(3))
    spans = spans_of(owners)
    rows = placed(starts, ends, Series(*columns), spans)
    span = np.repeat(np.arange(rows.offsets.size - 1), np.diff(rows.offsets)).tolist()
    runs = zip(span, *(column.tolist() for column in rows[1:]), strict=True)
    assert all(np.diff(starts[begin:until]).min(initial=0) >= 0 for begin, until in zip(*rows[2:], strict=True))
    return [(of, i, of_series) for of, of_series, begin, until in runs for i in range(begin, until)]


def test_a_transfer_is_placed_where_it_starts_and_once_for_each_of_its_owners() -> None:
    assert found([(5, 15)], [(0, 1, 0), (0, 1, 1)], [[(0, 10), (10, 20)], [(0, 4), (4, 20)]]) == [(0, 0, 0), (3, 0, 1)]


def test_what_is_over_before_a_span_begins_is_left_out_and_what_begins_after_the_last() -> None:
    assert found([(0, 10), (0, 11), (20, 25), (21, 25)], [(0, 4, 0)], [[(10, 20)]]) == [(0, 1, 0), (0, 2, 0)]


def test_within_a_span_rows_are_series_by_series() -> None:
    assert found([(0, 1), (2, 3), (1, 2)], [(0, 2, 0), (2, 3, 0)], [[(0, 9)]]) == [(0, 0, 0), (0, 1, 0), (0, 2, 1)]


TRANSFERS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda one: (one[0], sum(one))), max_size=12)
OWNERS = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda one: (one[0], sum(one))), max_size=5),
    min_size=1,
    max_size=3,
)


@given(TRANSFERS, OWNERS, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 2)), max_size=5))
def test_each_transfer_is_where_looking_through_all_spans_would_put_it(
    transfers: list[Span], owners: list[list[Span]], drawn: list[tuple[int, int, int]]
) -> None:
    """Also where transfers are in no order, and spans overlap; of spans that end together, the first counts."""
    series = [
        (min(*ends, len(transfers)), min(max(ends), len(transfers)), owner % len(owners)) for *ends, owner in drawn
    ]
    offsets = np.cumsum([0, *map(len, owners)]).tolist()
    expected = []
    for s, (begin, end, owner) in enumerate(series):
        for i in range(begin, end):
            start, until = transfers[i]
            later = [(span[1], n) for n, span in enumerate(owners[owner]) if span[1] >= start]
            if later and until > owners[owner][min(later)[1]][0]:
                expected.append((offsets[owner] + min(later)[1], i, s))
    rows = found(transfers, series, owners)
    assert sorted(rows) == sorted(expected)
    assert [(row[0], row[2], row[1]) for row in rows] == sorted((row[0], row[2], row[1]) for row in rows)
