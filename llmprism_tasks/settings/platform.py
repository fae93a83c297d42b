"""Settings of the platform: windows, places, the warehouse, messages, partitions and the method."""

from __future__ import annotations

from dataclasses import dataclass, fields

from llmprism_tasks.contract.fault_catalogue import KINDS
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.settings.schema import number, text

MOST_EMPTY_WINDOWS = 1_440


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
        90,
        unit="s",
        low=0,
        high=3600,
        reason="how long after its end a window waits for its files; the next minute's file comes after 60 s",
    )
    waits_for_next_file: str = text(
        "yes",
        choices=("yes", "no"),
        reason="whether a window waits for the next one's file, too: collectors write a flow to the file of the minute "
        "in which it ends; no, if each file has all flows that start in its minute",
    )
    quiet_s: int = number(
        5,
        unit="s",
        low=0,
        high=600,
        reason="a file that changed less than this ago may still be written; shared file systems notice after 3 s",
    )
    most_empty_windows: int = number(
        MOST_EMPTY_WINDOWS,
        unit="windows",
        low=0,
        high=1_000_000,
        reason="empty windows between records that one run fills in: a day of minutes; each costs half a second",
    )

    @property
    def length_ns(self) -> int:
        """The window's length, in ns."""
        return self.length_s * NANOSECONDS_PER_SECOND

    @property
    def allowed_lateness_ns(self) -> int:
        """The lateness that a window's records may have, in ns."""
        return self.allowed_lateness_s * NANOSECONDS_PER_SECOND

    @property
    def quiet_ns(self) -> int:
        """How long a file must be unchanged before it is read, in ns."""
        return self.quiet_s * NANOSECONDS_PER_SECOND


@dataclass(frozen=True)
class PlaceSettings:
    """Where flows and topology come from and where results go."""

    flows: str = text(
        "flows",
        reason="a file, a folder, or a pattern with the window's start, such as flows/{window:%Y%m%dT%H%M}.parquet",
    )
    topology: str = text("topology.csv", reason="the NIC table, CSV or Parquet")
    warehouse: str = text(
        "llmprism.duckdb",
        reason="a DuckDB file, a DuckLake as ducklake:FILE, or ducklake:postgres:dbname=… host=… for several machines",
    )
    metrics: str = text(
        "",
        reason="file for node-exporter's textfile collector, its name ending in .prom; empty: no metrics are written",
    )
    read_copy: str = text(
        "",
        reason="DuckDB file to which results are copied after each window, for llmprism sql, report and other readers; "
        "empty: no copy, readers and runs take turns",
    )
    handover: str = text(
        "",
        reason="folder that all machines share, for what a window's tasks leave for each other; empty: TMPDIR, on one",
    )


_NAME = "column of the {}; empty: the field's own name, or IPFIX's"
_UNIT = "; a unit may follow, as in first_seen:ms (ns, us, ms, s)"


@dataclass(frozen=True)
class ColumnSettings:
    """What a user's files call the fields of a flow."""

    flow_start_ns: str = text("", reason=_NAME.format("first packet") + _UNIT)
    flow_end_ns: str = text("", reason=_NAME.format("last packet") + _UNIT)
    src_addr: str = text("", reason=_NAME.format("sending NIC"))
    dst_addr: str = text("", reason=_NAME.format("receiving NIC"))
    src_port: str = text("", reason=_NAME.format("sending port"))
    dst_port: str = text("", reason=_NAME.format("receiving port"))
    protocol: str = text("", reason=_NAME.format("protocol"))
    bytes: str = text("", reason=_NAME.format("bytes"))
    packets: str = text("", reason=_NAME.format("packets"))
    switch_path: str = text("", reason=_NAME.format("switches crossed"))

    @property
    def given(self) -> dict[str, str]:
        """The user's columns, by field."""
        return {field.name: name for field in fields(self) if (name := getattr(self, field.name))}


@dataclass(frozen=True)
class WarehouseSettings:
    """How long to wait for other processes, and what a DuckLake with its catalog in PostgreSQL needs."""

    lock_wait_s: float = number(
        60.0,
        unit="s",
        low=0,
        high=3600,
        reason="the largest write of a window takes seconds, and several writers may queue",
    )
    data_path: str = text(
        "", reason="folder of a DuckLake's files, shared by all machines; empty: beside a catalog that is a file"
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


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",") if name.strip())


@dataclass(frozen=True)
class NotifySettings:
    """Which incidents send a message when they open or close, and to whom."""

    webhook: str = text(
        "",
        begins=("https://", "http://"),
        secret=True,
        reason="URL that receives each message as JSON; empty: no messages are sent",
    )
    format: str = text(
        "json",
        choices=("json", "slack", "alertmanager"),
        reason="what the receiver is: a program, an incoming webhook of Slack, or Alertmanager (…/api/v2/alerts)",
    )
    kinds: str = text(
        "",
        choices=tuple(KINDS),
        several=True,
        reason="kinds of incidents to report, such as hang,slow_nic; empty: all kinds",
    )
    quiet_kinds: str = text(
        "latent,ended",
        choices=tuple(KINDS),
        several=True,
        reason="kinds of incidents that send no message unless `kinds` names them: what costs nothing yet can wait, "
        "and a job that fell silent after a whole step has mostly ended",
    )
    one_step_gpu_s: float = number(
        36_000.0,
        unit="GPU-seconds",
        low=0,
        high=10**12,
        reason="a single slow step that cost less, ten GPU-hours, sends no message unless another one follows; nor "
        "does a slow group of unknown cause until it has cost as much",
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
        """Return the kinds that send messages."""
        return _names(self.kinds) or tuple(kind for kind in KINDS if kind not in _names(self.quiet_kinds))


@dataclass(frozen=True)
class CatchUpSettings:
    """When a window is due to be run (again), how that is tried, and when the pipeline is said to be behind."""

    skipped_after_s: int = number(
        180,
        unit="s",
        low=0,
        high=86_400,
        reason="a run that waits for a busy machine lands within two minutes of the allowed lateness, or never",
    )
    unfinished_after_s: int = number(
        900,
        unit="s",
        low=1,
        high=86_400,
        reason="the largest platform's window takes minutes; Airflow tries a task again for five minutes",
    )
    outage_windows: int = number(
        1440,
        unit="windows",
        low=1,
        high=100_000,
        reason="windows that are caught up after an outage of the scheduler: a day, and collectors keep files for one",
    )
    at_once: int = number(
        5, unit="windows", low=1, high=100, reason="windows taken up and not finished; they run one after another"
    )
    tries: int = number(
        5,
        unit="tries",
        low=1,
        high=20,
        reason="with pauses that double, the last is more than an hour after the first; then somebody has to look",
    )
    first_pause_s: int = number(
        300, unit="s", low=1, high=86_400, reason="from the first try to the second: longer than a window's run"
    )
    lag_s: int = number(
        300,
        unit="s",
        low=1,
        high=86_400,
        reason="overload: the newest finished window ended longer ago; a run waits for seconds and takes less than one "
        "minute",
    )
    backlog: int = number(
        20, unit="windows", low=1, high=100_000, reason="overload: more windows are due than an outage of 20 min leaves"
    )
    silent_after_s: int = number(
        600,
        unit="s",
        low=60,
        high=86_400,
        reason="no window was finished for so long: ten minutes in a row went wrong, which a restart does not explain",
    )


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
    spread: int = number(
        1,
        unit="tasks",
        low=1,
        high=1024,
        reason="partitions of a window that Airflow gives to its workers; 1 where one machine does a window alone",
    )


@dataclass(frozen=True)
class MethodSettings:
    """Which method runs."""

    name: str = text(
        "joint",
        choices=("joint", "published"),
        reason="joint analyses all pairs of a job together; published is the paper's method, kept for comparison",
    )
