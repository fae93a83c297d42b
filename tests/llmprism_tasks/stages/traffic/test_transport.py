"""What goes by TCP beside RDMA is no training, nor what acknowledges; who has no RDMA trains by TCP."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.traffic.index import TrafficIndex

UDP, TCP = 17, 6
LARGE, SMALL = 1 << 20, 100
ROWS = [
    ("a", "b", UDP, LARGE),
    ("b", "a", UDP, LARGE),
    ("c", "a", UDP, LARGE),
    ("a", "b", TCP, LARGE),  # beside the RDMA of the pair
    ("b", "c", TCP, LARGE),  # both move data by RDMA, with others
    ("c", "store", TCP, LARGE),  # the store has no RDMA
    ("d", "e", TCP, LARGE),
    ("d", "e", UDP, SMALL),  # no data
    ("e", "d", None, LARGE),
]


@pytest.fixture
def flows() -> pl.DataFrame:
    return pl.DataFrame(ROWS, ["src_addr", "dst_addr", "protocol", "bytes"], orient="row").with_columns(
        window_start_ns=0, flow_start_ns=pl.int_range(pl.len()) * 1_000, flow_end_ns=pl.int_range(pl.len()) * 1_000 + 9
    )


def carried(flows: pl.DataFrame) -> list[int]:
    """Return the rows that are said to carry data."""
    return sorted(TrafficIndex.of(flows, Settings().traffic).bulk["row"])


def test_tcp_between_nics_that_move_data_by_rdma_is_no_training(flows: pl.DataFrame) -> None:
    assert carried(flows) == [0, 1, 2, 5, 6, 8]


def test_all_data_count_where_a_collector_does_not_know_the_protocol(flows: pl.DataFrame) -> None:
    every = [0, 1, 2, 3, 4, 5, 6, 8]
    assert carried(flows.drop("protocol")) == every
    assert carried(flows.with_columns(protocol=pl.lit(None, pl.Int32))) == every


@pytest.mark.parametrize("only", [UDP, TCP])
def test_all_data_count_where_there_is_one_protocol(flows: pl.DataFrame, only: int) -> None:
    assert carried(flows.with_columns(protocol=pl.lit(only))) == [0, 1, 2, 3, 4, 5, 6, 8]


def between(*rows: tuple[str, str, int, int, int]) -> pl.DataFrame:
    """Return flows: source, destination, its ports, bytes."""
    names = ["src_addr", "dst_addr", "src_port", "dst_port", "bytes"]
    return pl.DataFrame(rows, names, orient="row").with_columns(
        window_start_ns=0, flow_start_ns=pl.int_range(pl.len()) * 1_000, flow_end_ns=pl.int_range(pl.len()) * 1_000 + 9
    )


@pytest.mark.parametrize(
    ("ports", "answered", "is_data"),
    [
        ((4791, 7000), 0.029, False),
        ((4791, 7000), 0.031, True),
        ((7000, 4791), 0.029, False),
        ((7000, 4791), 0.031, True),
        ((9000, 4791), 0.0019, False),
        ((9000, 4791), 0.0021, True),
        (None, 0.0019, False),
        (None, 0.0021, True),
    ],
)
def test_what_acknowledges_is_no_data(ports: tuple[int, int] | None, answered: float, *, is_data: bool) -> None:
    """TCP has the ports turned, RoCEv2 the same ones; a collector may have others, or none."""
    flows = between(
        ("a", "b", 7000, 4791, 60 * LARGE),
        ("a", "b", 7000, 4791, 40 * LARGE),
        ("b", "a", *(ports or (0, 0)), round(100 * LARGE * answered)),
    )
    known = flows if ports else flows.drop("src_port", "dst_port")
    assert carried(known) == ([0, 1, 2] if is_data else [0, 1])


def test_less_data_beside_more_over_another_connection_are_data() -> None:
    """Two members of two groups: each connection carries its own, and each is acknowledged."""
    flows = between(
        ("a", "b", 7000, 4791, 100 * LARGE),
        ("b", "a", 7000, 4791, LARGE),
        ("b", "a", 8000, 4791, 10 * LARGE),
        ("a", "b", 8000, 4791, LARGE // 4),
    )
    assert carried(flows) == [0, 2]


@pytest.mark.parametrize(("answered", "is_data"), [(0.0019, False), (0.0021, True)])
def test_where_ports_are_zero_nobody_knows_the_connection(answered: float, *, is_data: bool) -> None:
    flows = between(("a", "b", 0, 0, 100 * LARGE), ("b", "a", 0, 0, round(100 * LARGE * answered)))
    assert carried(flows) == ([0, 1] if is_data else [0])


def test_training_beside_a_copy_that_goes_the_other_way_is_data() -> None:
    """A copy of a hundred times as much, over a connection of its own."""
    flows = between(("a", "b", 9000, 22, 100 * LARGE), ("b", "a", 7000, 4791, LARGE))
    assert carried(flows) == [0, 1]
