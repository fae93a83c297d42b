"""Every number that can be set: its default, unit, range and reason, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmprism_tasks.kinds import KINDS
from llmprism_tasks.windows import NANOSECONDS_PER_SECOND


def number(default: float, *, unit: str, low: float, high: float, reason: str) -> Any:
    """Declare a numeric setting with its unit, its range (both ends allowed) and why it is what it is."""
    return field(default=default, metadata={"unit": unit, "low": low, "high": high, "reason": reason})


def text(
    default: str,
    *,
    reason: str,
    choices: tuple[str, ...] = (),
    begins: tuple[str, ...] = (),
    several: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a text setting.

    Parameters
    ----------
    choices : empty when any text will do
    begins : how a text that is not empty must begin; empty when in any way
    several : whether some of them may be given with commas between
    secret : whether it is not to be shown, for who knows it may use it
    """
    limits = {"choices": choices, "begins": begins, "several": several}
    return field(default=default, metadata={"unit": "text", "secret": secret, "reason": reason} | limits)


@dataclass(frozen=True)
class WindowSettings:
    """How time is cut, how far back a window looks and how long it waits."""

    length_s: int = number(60, unit="s", low=1, high=3600, reason="the published system reports by the minute")
    lookback_windows: int = number(
        5,
        unit="windows",
        low=0,
        high=60,
        reason="five minutes hold three whole steps of 90 s, the longest that are to come out whole",
    )
    allowed_lateness_s: int = number(
        15, unit="s", low=0, high=3600, reason="how long after its end a window waits for records still on their way"
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


@dataclass(frozen=True)
class WarehouseSettings:
    """Patience with other processes."""

    lock_wait_s: float = number(
        60.0, unit="s", low=0, high=3600, reason="a window's largest write takes seconds, and a few may queue"
    )


@dataclass(frozen=True)
class ValidationSettings:
    """What is left of the checks beside the table of their results."""

    docs: str = text(
        "", reason="the folder of Great Expectations' Data Docs; empty: beside the warehouse, its name and .docs"
    )


@dataclass(frozen=True)
class NotifySettings:
    """Who is told when an incident opens or closes, and of which."""

    webhook: str = text(
        "",
        begins=("https://", "http://"),
        secret=True,
        reason="the address to which messages are posted as JSON; empty: nobody is told",
    )
    kinds: str = text(
        "", choices=tuple(KINDS), several=True, reason="of incidents to tell of, such as hang,slow_nic; empty: all"
    )
    least_severity: float = number(
        0.0, unit="ratio of time lost", low=0, high=100, reason="what is diagnosed at all was above its job's noise"
    )
    oldest_s: float = number(
        900.0,
        unit="s",
        low=0,
        high=10**9,
        reason="windows that ended earlier, as those of a backfill, page nobody; raise it to be told of them",
    )
    timeout_s: float = number(
        5.0, unit="s", low=0.1, high=60, reason="receivers answer in well under a second; windows wait no longer"
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
        reason="the stages see about so many (look-back included) at a time; a million take more than half a gibibyte",
    )


@dataclass(frozen=True)
class MethodSettings:
    """Which method runs."""

    name: str = text(
        "joint",
        choices=("joint", "published"),
        reason="joint reads all pairs of a job together; published is the paper's method, kept for comparison",
    )


@dataclass(frozen=True)
class TrafficSettings:
    """Which flows carry a job's data."""

    control_bytes: int = number(
        16_384,
        unit="bytes",
        low=0,
        high=1_048_576,
        reason="handshakes, scalars and ready messages stay below 4 KiB, the smallest activation seen has 64",
    )
    same_size: float = number(
        0.02,
        unit="ratio",
        low=0,
        high=0.5,
        reason="of a message that came in parts: headers and what is sent again change it by less than 2 %",
    )
    longest_pause_ms: float = number(
        20.0,
        unit="ms",
        low=0,
        high=1000,
        reason="between the parts of a message: a slow NIC pauses for some milliseconds, a GPU works for longer",
    )
    restart_silence_s: float = number(
        10.0,
        unit="s",
        low=0.1,
        high=3600,
        reason="frameworks need longer to come back from a crash; data loaders and garbage collections are quicker",
    )
    restart_ratio: float = number(
        4.0,
        unit="ratio of the usual silence",
        low=1,
        high=1000,
        reason="a step with a checkpoint in it may be silent for twice or three times as long as others",
    )


@dataclass(frozen=True)
class RhythmSettings:
    """How the common period of pairs is found, and what counts as one of its steps."""

    shortest_quiet_ms: float = number(
        5.0,
        unit="ms",
        low=0.001,
        high=1000,
        reason="the coarsest common idle timeout; steps last 0.2 s and more, and are quiet for far longer",
    )
    quiet_ratio: float = number(
        1.5,
        unit="ratio",
        low=1.01,
        high=100,
        reason="in captured DDP the quiet gap is 1.7 times the longest inside a burst",
    )
    few_quiet_ratio: float = number(
        5.0,
        unit="ratio",
        low=1.01,
        high=1000,
        reason="two or three bursts are believed only if far apart: compute between steps is quiet for seconds",
    )
    same_size: float = number(
        0.02,
        unit="ratio",
        low=0,
        high=0.5,
        reason="headers and merged control messages change a tensor's size by less than 2 %",
    )
    one_size_share: float = number(
        0.9,
        unit="ratio",
        low=0,
        high=1,
        reason="of a pair's bytes in one size: pipeline pairs have 1.0, gradient buckets at most 0.7",
    )
    answer_bytes: float = number(
        0.2,
        unit="natural logarithm",
        low=0,
        high=10,
        reason="what comes back in a step has as many bytes, but for lost records",
    )
    least_share: float = number(
        0.05,
        unit="ratio of the bytes",
        low=0,
        high=1,
        reason="of a pair's traffic in one size, or of a group's in one rhythm, below which it is taken for chance",
    )
    byte_tolerance: float = number(
        0.1,
        unit="ratio",
        low=0,
        high=1,
        reason="a step moves the same bytes; loss and retransmission change a few percent",
    )
    pace_tolerance: float = number(
        0.25,
        unit="ratio",
        low=0,
        high=1,
        reason="healthy steps vary by up to 10 %, neighbours by more, parts of a step by far more",
    )
    same_period: float = number(
        0.1,
        unit="ratio",
        low=0.001,
        high=1,
        reason="medians over a few steps of the same job differ by their jitter, up to 10 %",
    )
    least_support: float = number(
        0.6,
        unit="ratio of the NICs",
        low=0,
        high=1,
        reason="all NICs take part in a step; some pairs are too broken to show it",
    )
    period_support: float = number(
        0.85,
        unit="ratio of the best supported",
        low=0,
        high=1,
        reason="a period seen by chance is shared by some pairs, the step's by about all",
    )
    period_persistence: float = number(
        0.4,
        unit="ratio of the time",
        low=0,
        high=1,
        reason="micro-batches go on for most of a step, buckets for a tenth of it",
    )
    least_run: float = number(
        0.1,
        unit="ratio of the time seen",
        low=0,
        high=1,
        reason="four buckets of a first burst go on for seconds, a job that has just stopped did for most of a minute",
    )
    least_run_s: float = number(
        10.0,
        unit="s",
        low=0,
        high=3600,
        reason="bursts that are over sooner may be the buckets of one: those of the last micro-batch take seconds",
    )
    least_explained: float = number(
        0.5,
        unit="ratio of the bytes",
        low=0,
        high=1,
        reason="a step's period moves most bytes; beside a part of it, the rest seems to come by chance",
    )
    compact: float = number(
        0.75,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="gradients are reduced in the backward pass, two thirds of a step at most; traffic of every layer, "
        "experts' or blocks of context, goes on for longer",
    )
    steady_variation: float = number(
        0.3,
        unit="ratio",
        low=0,
        high=10,
        reason="experts are called equally often in each step; buckets of one burst are not",
    )
    least_step: float = number(
        0.6,
        unit="ratio",
        low=0,
        high=1,
        reason="of a typical step's bytes: the first weights' broadcast carries less, a step with losses more",
    )
    least_whole: float = number(
        0.9,
        unit="ratio",
        low=0,
        high=1,
        reason="of a typical step's bytes: below it, a burst may be only the first part of its step",
    )


@dataclass(frozen=True)
class RecognitionSettings:
    """When clusters of NICs are one job."""

    host_similarity: float = number(
        0.5,
        unit="ratio",
        low=0,
        high=1,
        reason="Jaccard similarity of host sets above which clusters are one job; rails of one job have the same hosts",
    )
    phase_tolerance: float = number(
        0.001,
        unit="ratio of the period",
        low=0,
        high=0.5,
        reason="ends of one job's steps keep their distance to half of this; two jobs' walk beyond it in ten steps",
    )
    phase_tolerance_ms: float = number(
        3.0,
        unit="ms",
        low=0,
        high=1000,
        reason="what a lost last record, a clock of milliseconds or a crossing flow change in a step's end",
    )
    least_together: float = number(
        0.75,
        unit="ratio of the bytes",
        low=0,
        high=1,
        reason="rails of one job begin nine tenths of what they send within milliseconds of each other, less where "
        "records are lost; chance gives two jobs a tenth",
    )
    walk_parts: int = number(
        6,
        unit="parts",
        low=1,
        high=100,
        reason="distances are compared a sixth of the steps apart: a fault that comes and goes touches a minority, "
        "a drift adds up",
    )
    own_jitter: float = number(
        0.7,
        unit="ratio",
        low=0,
        high=10,
        reason="how far the distance walks over the jitter of both: rails of a job up to 0.58, two jobs 0.87 and more",
    )
    rail_likeness: float = number(
        0.5,
        unit="ratio",
        low=0,
        high=1,
        reason="of bytes per NIC, where steps are not known yet: rails of one job carry equal shares of each tensor",
    )
    negligible: float = number(
        0.002,
        unit="ratio",
        low=0,
        high=1,
        reason="of the rate of a NIC's largest pair: chatter has 0.0004 and less, the smallest activations 0.013",
    )
    settling_s: float = number(
        30.0,
        unit="s",
        low=1,
        high=3600,
        reason="how old a pair is taken to be at least: a host that came just now counts beside those that stayed, "
        "one message of chatter does not",
    )
    regular_bursts: int = number(
        4, unit="bursts", low=2, high=100, reason="two or three alike happen by chance: three copies of one model"
    )
    main_share: float = number(
        0.5,
        unit="ratio",
        low=0,
        high=1,
        reason="of a NIC's largest pair: the first gradients seen carry most, a copy beside steps that repeat does not",
    )
    least_presence: float = number(
        0.5,
        unit="ratio",
        low=0,
        high=1,
        reason="of the turns since it began: experts are called in all, copies and chatter in few",
    )
    longest_silence: float = number(
        2.0,
        unit="ratio",
        low=1,
        high=100,
        reason="of the longest silence before: a pair silent for twice as long, while its job goes on, is over",
    )
    least_bytes: int = number(
        10_000_000,
        unit="bytes",
        low=0,
        high=10**12,
        reason="of a job's typical NIC in a window: chatter with all others stays below, a few small steps move more",
    )
    silent_periods: float = number(
        1.5,
        unit="periods",
        low=0,
        high=10,
        reason="a pair silent for longer than its period, with room for jitter, has stopped",
    )


@dataclass(frozen=True)
class ParallelismSettings:
    """What tells the kinds of pairs apart."""

    least_presence: float = number(
        0.5,
        unit="ratio of the steps",
        low=0,
        high=1,
        reason="what comes in fewer steps (start-up, a checkpoint) is not the layout's",
    )
    steady_presence: float = number(
        0.8,
        unit="ratio of the steps",
        low=0,
        high=1,
        reason="what belongs to steps comes in each, though the first may have begun unseen; what comes so often by "
        "chance comes several times in most, and not equally often",
    )
    answer_interval: float = number(
        0.25,
        unit="ratio of the time between records",
        low=0,
        high=10,
        reason="from an activation that goes alone to the next exchange; both directions of a collective go at once",
    )
    lag_interval: float = number(
        0.75,
        unit="ratio of the time between records",
        low=0,
        high=10,
        reason="a gradient comes back a forward and a backward after its activation, an interval; a late rank's record "
        "follows the early one's sooner",
    )
    answer_ms: float = number(
        5.0,
        unit="ms",
        low=0,
        high=10_000,
        reason="clocks of two switches differ by up to a millisecond; a micro-batch takes tens of them",
    )
    pipeline_spread: float = number(
        0.25,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="micro-batches fill half of the step and more, one burst of equal buckets a tenth",
    )
    filling_spread: float = number(
        0.5,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="experts and context-parallel rings are called in every layer, through most of the step",
    )
    sharded_spread: float = number(
        0.7,
        unit="ratio of the period",
        low=0,
        high=1,
        reason="sharded parameters are gathered through forward and backward, gradients reduced in half of it at most",
    )
    message_ms: float = number(
        1.0,
        unit="ms",
        low=0,
        high=10_000,
        reason="queue pairs of one message begin within microseconds, micro-batches are apart by several ms",
    )
    expert_variation: float = number(
        0.002,
        unit="ratio",
        low=0,
        high=1,
        reason="deviation of a pair's bytes per step: hundreds of routed messages vary by a percent, gradients do not",
    )
    expert_records: int = number(
        8,
        unit="records per step",
        low=1,
        high=1000,
        reason="two calls a layer, forward and backward: four layers at least",
    )
    expert_sizes: float = number(
        0.5,
        unit="ratio of the records",
        low=0,
        high=1,
        reason="sizes not met in most other steps: a router makes every size anew, a schedule repeats its own",
    )
    gradient_share: float = number(
        0.2,
        unit="ratio of the bytes",
        low=0,
        high=1,
        reason="of a pair that experts use as well: of the sizes that a router makes some are alike, up to a tenth",
    )
    ring_share: float = number(
        0.5,
        unit="ratio",
        low=0,
        high=1,
        reason="of a NIC's largest synchronised pair: rings of one collective carry equal bytes",
    )


@dataclass(frozen=True)
class TimelineSettings:
    """When a step is over."""

    overdue: float = number(
        1.25,
        unit="ratio of a typical burst",
        low=1,
        high=10,
        reason="a synchronisation that lasts longer than usual without its bytes has lost records, not time",
    )


@dataclass(frozen=True)
class DiagnosisSettings:
    """What is news. False alarms cost more than a late one."""

    least_effect: float = number(
        0.04,
        unit="ratio of the step",
        low=0,
        high=1,
        reason="below 4 % of step time normal jitter wins",
    )
    sigmas: float = number(
        5.0,
        unit="robust deviations",
        low=1,
        high=100,
        reason="thousands of comparisons an hour call for more than the usual three",
    )
    least_steps: int = number(
        3, unit="steps", low=1, high=1000, reason="one slow step is chance, three in a row are a trouble"
    )
    persistence: float = number(
        0.7,
        unit="ratio of the steps",
        low=0,
        high=1,
        reason="a trouble shows in most steps; jitter hits another rank each time",
    )
    noise_margin: float = number(
        3.0,
        unit="robust deviations",
        low=0,
        high=100,
        reason="of the job's own noise, in a step or in what lasts, below which an excess is not counted as slow",
    )
    least_noise: float = number(
        0.01,
        unit="ratio",
        low=0,
        high=1,
        reason="healthy hosts differ by 1 % for ever; a smaller deviation would only make scores large",
    )
    least_lasting_s: float = number(
        10.0, unit="s", low=0, high=3600, reason="what is over sooner is a pause: by the time it is told, it is gone"
    )
    least_work_ms: float = number(
        2.0,
        unit="ms",
        low=0,
        high=10_000,
        reason="the clocks of switches differ by up to a millisecond: shorter work tells more of them than of a host",
    )
    uneven_stage: float = number(
        0.15,
        unit="ratio of a pass",
        low=0,
        high=10,
        reason="stages differ by a layer where layers do not divide: one in eight",
    )
    uneven_last: float = number(
        0.25,
        unit="ratio of a pass",
        low=0,
        high=10,
        reason="the last stage has the loss, too: with a vocabulary of 16 times the hidden size, 2.7 of ten layers",
    )
    least_stall: float = number(
        0.1, unit="ratio of the step", low=0, high=10, reason="a shorter pause is the jitter of steps"
    )
    least_uneven: float = number(
        0.35,
        unit="ratio of the step",
        low=0,
        high=1,
        reason="samples that differ by a fifth cost 16 replicas a quarter of the step, 64 a third: owners know",
    )
    least_checkpoint: float = number(
        0.1,
        unit="ratio of the steps from one to the next",
        low=0,
        high=10,
        reason="who saves every minute pays several percent and chose to; a tenth is worth another choice",
    )
    least_bytes: int = number(
        250_000,
        unit="bytes",
        low=1,
        high=10**12,
        reason="for the pace of one record: switches and NICs let some ten kB pass at any rate, and clocks err by 1 us",
    )
    own_bytes: int = number(
        1_000_000,
        unit="bytes",
        low=1,
        high=10**12,
        reason="for the pace of the first record of a step: queues that are empty take some hundred kB at any rate",
    )
    least_transfers: int = number(
        2,
        unit="transfers",
        low=1,
        high=1000,
        reason="one slow hop may be the fault of either end; a device slows all that cross it",
    )
    slow_rate: float = number(
        1.25,
        unit="ratio",
        low=1.01,
        high=100,
        reason="a path's pace differs by a few percent from step to step; a degraded device halves it",
    )


@dataclass(frozen=True)
class PublishedSettings:
    """The published method's own numbers; it is kept for comparison."""

    posterior: float = number(
        0.95, unit="probability", low=0.5, high=1, reason="as published: how sure a change must be to begin a step"
    )
    run_length: int = number(
        64, unit="intervals", low=1, high=4096, reason="what a run remembers; most bursts are shorter, and time linear"
    )
    hazard: float = number(
        0.3, unit="probability", low=0.001, high=0.999, reason="a step may have as few as three records before its gap"
    )
    interval_scale: float = number(
        0.5, unit="natural logarithm", low=0.001, high=10, reason="intervals inside a burst differ by a factor of two"
    )
    mean_weight: float = number(
        0.01, unit="intervals", low=1e-6, high=1000, reason="a run's level may lie ten scales from the prior's"
    )
    scale_weight: float = number(
        1000.0, unit="intervals", low=1, high=1e9, reason="with less, gaps that recur are soon ordinary"
    )
    shortest_interval_ms: float = number(
        20.0, unit="ms", low=1e-6, high=1000, reason="buckets and channels of one burst follow closer than this"
    )
    sigmas: float = number(3.0, unit="deviations", low=0.1, high=100, reason="the usual k of a k-sigma rule")
    resolution: float = number(
        0.003, unit="ratio", low=1e-6, high=1, reason="published error of step durations; lesser differences are none"
    )


@dataclass(frozen=True)
class Settings:
    """All settings, one section each; a stage is handed its own section."""

    window: WindowSettings = field(default_factory=WindowSettings)
    places: PlaceSettings = field(default_factory=PlaceSettings)
    warehouse: WarehouseSettings = field(default_factory=WarehouseSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    batches: BatchSettings = field(default_factory=BatchSettings)
    method: MethodSettings = field(default_factory=MethodSettings)
    traffic: TrafficSettings = field(default_factory=TrafficSettings)
    rhythm: RhythmSettings = field(default_factory=RhythmSettings)
    recognition: RecognitionSettings = field(default_factory=RecognitionSettings)
    parallelism: ParallelismSettings = field(default_factory=ParallelismSettings)
    timeline: TimelineSettings = field(default_factory=TimelineSettings)
    diagnosis: DiagnosisSettings = field(default_factory=DiagnosisSettings)
    published: PublishedSettings = field(default_factory=PublishedSettings)
