"""Settings of the platform: windows, places, the warehouse, messages, partitions and the method."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.contract.fault_catalogue import KINDS
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.settings.schema import number, text


@dataclass(frozen=True)
class WindowSettings:
    """How time is cut, how far back a window looks and how long it waits."""

    length_s: int = number(60, unit="s", low=1, high=3600, reason="the published system reports by the minute")
    lookback_windows: int = number(
        5,
        unit="windows",
        low=0,
        high=60,
        reason="five minutes hold three whole steps of 90 s, the longest step that is supported",
    )
    allowed_lateness_s: int = number(
        15, unit="s", low=0, high=3600, reason="how long after its end a window waits for late records"
    )

    @property
    def length_ns(self) -> int:
        return self.length_s * NANOSECONDS_PER_SECOND

    @property
    def allowed_lateness_ns(self) -> int:
        return self.allowed_lateness_s * NANOSECONDS_PER_SECOND


@dataclass(frozen=True)
class PlaceSettings:
    """Where flows and topology come from and where results go."""

    flows: str = text(
        "flows",
        reason="a file, a folder, or a pattern with the window's start, such as flows/{window:%Y%m%dT%H%M}.parquet",
    )
    topology: str = text("topology.csv", reason="the NIC table, CSV or Parquet")
    warehouse: str = text("llmprism.duckdb", reason="a DuckDB file, or a DuckLake as ducklake:…")
    read_copy: str = text(
        "",
        reason="DuckDB file to which results are copied after each window, for llmprism sql, report and other readers; "
        "empty: no copy, readers and runs take turns",
    )


@dataclass(frozen=True)
class WarehouseSettings:
    """How long to wait for other processes, and the password of a DuckLake's catalog."""

    lock_wait_s: float = number(
        60.0,
        unit="s",
        low=0,
        high=3600,
        reason="the largest write of a window takes seconds, and several writers may queue",
    )
    catalog_password: str = text(
        "", secret=True, reason="for a DuckLake whose catalog is in a database; one in places.warehouse is moved here"
    )


@dataclass(frozen=True)
class RetentionSettings:
    """How long rows are kept, counted back from the newest window; nothing is deleted unless `llmprism expire` runs."""

    flows_h: float = number(
        6.0,
        unit="h",
        low=0,
        high=87_600,
        reason="flows and refused records, which prove an incident: for a shift; 0: for ever",
    )
    timeline_h: float = number(
        24.0,
        unit="h",
        low=0,
        high=87_600,
        reason="timeline and other rows of single NICs and steps, most of what is written: to look at a day; "
        "0: for ever",
    )
    results_d: float = number(
        400.0, unit="d", low=0, high=3_650, reason="all else, to compare with the same month of last year; 0: for ever"
    )


@dataclass(frozen=True)
class ValidationSettings:
    """What the checks leave besides the table `validation_results`."""

    docs: str = text(
        "", reason="folder of Great Expectations' Data Docs; empty: beside the warehouse, by its name and .docs"
    )


@dataclass(frozen=True)
class NotifySettings:
    """Which incidents send a message when they open or close, and to whom."""

    webhook: str = text(
        "",
        begins=("https://", "http://"),
        secret=True,
        reason="URL that receives each message as JSON; empty: no messages are sent",
    )
    kinds: str = text(
        "",
        choices=tuple(KINDS),
        several=True,
        reason="kinds of incidents to report, such as hang,slow_nic; empty: all kinds",
    )
    least_severity: float = number(
        0.0,
        unit="ratio of time lost",
        low=0,
        high=100,
        reason="incidents below this severity send no message; every diagnosis is above the noise of its job already",
    )
    oldest_s: float = number(
        900.0,
        unit="s",
        low=0,
        high=10**9,
        reason="windows that ended longer ago, such as those of a backfill, send no messages; raise it to get them",
    )
    timeout_s: float = number(
        5.0,
        unit="s",
        low=0.1,
        high=60,
        reason="a receiver answers in well under a second, and the window should not wait for a broken one",
    )

    @property
    def kind_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.kinds.split(",") if name.strip())


@dataclass(frozen=True)
class BatchSettings:
    """How many flows are worked on at a time."""

    at_once: int = number(
        1_500_000,
        unit="flows",
        low=1,
        high=1_000_000_000,
        reason="flows per partition, look-back included; one million need about 0.6 GiB",
    )


@dataclass(frozen=True)
class MethodSettings:
    """Which method runs."""

    name: str = text(
        "joint",
        choices=("joint", "published"),
        reason="joint analyses all pairs of a job together; published is the paper's method, kept for comparison",
    )
