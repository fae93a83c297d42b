"""Evidence: the frames in which all detectors of the diagnosis phase look for faults, gathered once per window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics import grouped_sort
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import DiagnosisSettings, Settings
from llmprism_tasks.stages.diagnosis.own_work.announcements import MEASURED_COLUMNS, announced
from llmprism_tasks.stages.diagnosis.own_work.own_work import own_work
from llmprism_tasks.stages.liveness.foreign import BIN_NS
from llmprism_tasks.stages.liveness.overdue import Silence, long_silences
from llmprism_tasks.stages.liveness.quiet_times import beyond_chatter, quiet_times
from llmprism_tasks.stages.parallelism.layout.dp_groups import gradient_groups
from llmprism_tasks.stages.step_division import completion
from llmprism_tasks.stages.step_division.division import Division
from llmprism_tasks.stages.step_division.restarts import since_restart
from llmprism_tasks.stages.timeline.placement import NIC
from llmprism_tasks.stages.traffic import nic_pairs, retries
from llmprism_tasks.stages.traffic.index import JobTraffic, TrafficIndex

HEALTHY_STEP_QUANTILE = 0.25
"""Quantile of a job's step lengths that is a healthy step, as long as a fault spares a quarter of the look-back."""

FINDING_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "job_id": pl.String,
    "kind": pl.String,
    "subject_type": pl.String,
    "subject": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "score": pl.Float64,
    "severity": pl.Float64,
    "explanation": pl.String,
    "confidence": pl.Float64,
    "peers": pl.List(pl.String),
    "candidates": pl.List(pl.String),
    "odds": pl.List(pl.Float64),
    "steps": pl.Int32,
    "lost_s": pl.Float64,
}
"""Columns of a finding: those of `diagnoses`, without the window and what `ranking` and `price` add.

`confidence` is the share of the job's loss that the subject explains, 0 to 1; NULL for an effect, which explains none.
`peers` are the subjects it was compared with, sorted, of the subject's type (for a host: the NICs of other hosts); NULL
if it was compared only with its own past. `candidates` are the devices that may be at fault, or the readings that the
data leave open, the likeliest first, and `odds` their probabilities, which add up to 1; NULL where one is sure. `steps`
is the number of slow steps if the finding is about single ones, else NULL. `lost_s` is how long the job lost, if the
detector knows it; NULL where `price` finds out.
"""

MOST_SUSPECTS = 3
"""NICs that are named together if the data do not tell them apart: more are no help to who looks for the fault."""

ENOUGH_STEPS = 12
"""Steps of a window that are enough to show a fault: three deviations of their median are less than one of a step."""

PAIR_KIND_ENUM = pl.Enum(["cp", "dp", "ep", "other", "pp", "tp"])
"""Kinds of pairs as numbers, in alphabetical order; each of millions of flows has one."""

STORAGE_SCHEMA = {"job_id": pl.String, "flow_start_ns": pl.Int64, "bytes": pl.Int64}

RETRIES_SCHEMA = {"job_id": pl.String, **retries.RETRIES_SCHEMA}

PAUSES_SCHEMA = {"job_id": pl.String, "since_ns": pl.Int64, "back_ns": pl.Int64}

FOREIGN_TRAFFIC_SCHEMA = {"job_id": pl.String, "addr": pl.String, "flow_start_ns": pl.Int64, "bytes": pl.Int64}


Finder = Callable[["Evidence", DiagnosisSettings], pl.DataFrame]


@dataclass(frozen=True)
class Evidence:
    """Frames that the detectors share. Of a job that restarted, only the run in which most steps ended.

    Attributes
    ----------
    flows : bulk flows inside jobs, look-back included, with `job_id` and `kind`. `job_id`, `src_addr` and `dst_addr`
        are codes (`pl.Enum`): join with `nic_pairs.as_coded(known, flows)`, make text with `nic_pairs.named`
    steps : steps of NICs, look-back included, without each NIC's first step and those after a missing one, whose start
        was not seen: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`, `current` (ended in the window), sorted
    history : steps of jobs, look-back included: `job_id`, `step_index`, `start_ns`, `end_ns`, `current` (ended in the
        window), sorted
    groups : data-parallel groups: `job_id`, `addr`, `component`
    members : `job_id`, `addr`, `host`, `pp_stage` (NULL when unknown)
    window : the window
    silences : silences of jobs in the middle of a step, or after which some members were replaced
    rests : other long silences of jobs that are news: between two steps, or after a checkpoint was written
    pauses : silences of jobs, of a second or more, look-back included, whatever run they were in: `job_id`, `since_ns`,
        `back_ns`
    storage : writes of members to addresses outside the topology: `job_id`, `flow_start_ns`, `bytes`
    paths : the `switch_path` of each `row` of the flows table; None if the flows have the column themselves
    beside : bulk flows of members that are no training of their job, as from and to others than members, once for each
        member at their ends: `job_id`, `addr`, `flow_start_ns`, `bytes`
    retried : tries in vain between members, as `retries.retried` returns, with `job_id`
    announced : control messages by which members tell each other that they have come, as `announced` returns them
    index : all flows of the partition
    elsewhere : `flow_start_ns` of flows in other partitions of the platform; None where there is one alone
    """

    flows: pl.DataFrame
    steps: pl.DataFrame
    history: pl.DataFrame
    groups: pl.DataFrame
    members: pl.DataFrame
    window: Window
    silences: Sequence[Silence] = ()
    rests: Sequence[Silence] = ()
    pauses: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PAUSES_SCHEMA))
    storage: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STORAGE_SCHEMA))
    paths: pl.Series | None = None
    beside: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FOREIGN_TRAFFIC_SCHEMA))
    retried: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RETRIES_SCHEMA))
    announced: pl.DataFrame | None = None
    index: TrafficIndex | None = None
    elsewhere: pl.DataFrame | None = None

    def once(self, find: Finder, settings: DiagnosisSettings) -> pl.DataFrame:
        """Return what a detector finds in this evidence; computed once, also if several detectors ask."""
        if (find, settings) not in self._findings:
            self._findings[find, settings] = find(self, settings)
        return self._findings[find, settings]

    @cached_property
    def _findings(self) -> dict[tuple[Finder, DiagnosisSettings], pl.DataFrame]:
        return {}

    def of_jobs(self, jobs: pl.Series) -> pl.DataFrame:
        """Return the flows of some jobs."""
        return self.flows.filter(pl.col("job_id").is_in(jobs.unique().implode()))

    def begun_by_others(self, job_id: str) -> Integers:
        """Return when each flow of the platform that is none of a job's own began, ns, ascending: shape (flows,)."""
        if self.index is None:
            return np.zeros(0, np.int64)
        own = self.flows.filter(pl.col("job_id") == job_id)["pair"].unique()
        others = self.index.flows.filter(~pl.col("pair").is_in(own.implode()))["flow_start_ns"].to_numpy()
        away = others[:0] if self.elsewhere is None else self.elsewhere["flow_start_ns"].to_numpy()
        return np.sort(np.concatenate([others, away]))

    def heard(self, flows: pl.DataFrame) -> pl.DataFrame:
        """Return flows of some jobs with the announcements of their members, to measure own work."""
        if self.announced is None or self.announced.is_empty():
            return flows
        jobs = flows["job_id"].unique().implode()
        flows = flows.select(MEASURED_COLUMNS)
        return pl.concat([flows, self.announced.filter(pl.col("job_id").is_in(jobs)).cast(flows.schema)])

    def with_paths(self, flows: pl.DataFrame) -> pl.DataFrame:
        """Add `switch_path` and address texts to some of the flows; for all flows that would be expensive."""
        flows = flows.with_columns(nic_pairs.named(flows.select("job_id", *nic_pairs.PAIR)))
        return flows if self.paths is None else flows.with_columns(frames.paths(self.paths.gather(flows["row"])))

    @cached_property
    def work(self) -> pl.DataFrame:
        """Own work of the NICs in the steps of the window, as `own_work` returns it.

        Steps of the look-back are included if the window has few steps, or if there are no replicas to compare with.
        """
        now = self.steps.filter("current").group_by("job_id").agg(many=pl.col("step_index").n_unique() >= ENOUGH_STEPS)
        enough = now.filter("many").join(self.groups, on="job_id", how="semi")
        known = pl.col("current") | ~pl.col("job_id").is_in(enough["job_id"].implode())
        return own_work(self.heard(self.flows), self.steps.filter(known), self.groups, hosts=self.members)


def gather(
    job_traffic: JobTraffic,
    step_ends: Division | None,
    topology: pl.DataFrame,
    job_members: pl.DataFrame,
    pairs: pl.DataFrame,
    steps: pl.DataFrame,
    window: Window,
    settings: Settings,
    elsewhere: pl.DataFrame | None = None,
) -> Evidence | None:
    """Gather the evidence of a window; None if no job has steps in it or is silent for long.

    Parameters
    ----------
    job_traffic, step_ends : as for `diagnosis`
    """
    every, traffic = job_traffic.bulk, job_traffic.index
    silent = long_silences(every, traffic, topology, window, settings, elsewhere)
    silences = [silence for silence in silent if silence.in_mid_step or silence.replaced]
    resting = (silence for silence in silent if not (silence.in_mid_step or silence.replaced))
    rests = [silence for silence in resting if silence.is_news and not silence.unwitnessed]
    if steps.filter(pl.col("addr").is_not_null()).is_empty() and not silences and not rests:
        return None
    # Another run may have other hosts, another layout, or be another job, so runs are not compared.
    division = None if step_ends is None else step_ends.by_run()[0]
    bulk = since_restart(every, window, settings.traffic) if division is None else division.flows
    flows = _with_kinds(bulk, traffic, pairs)
    return Evidence(
        flows=flows,
        steps=_step_spans(None if division is None else division.endpoints, *NIC),
        history=_step_spans(None if division is None else division.job_steps, "job_id"),
        groups=gradient_groups(pairs, job_members, topology).rename({"group": "component"}),
        members=job_members.select("job_id", "addr", "host", "pp_stage"),
        window=window,
        silences=silences,
        rests=rests,
        pauses=quiet_times(beyond_chatter(every, settings)).filter(pl.col("back_ns") - pl.col("since_ns") >= BIN_NS),
        storage=_storage_writes(traffic, topology, job_members),
        paths=traffic.table["switch_path"],
        beside=_foreign_traffic(traffic, job_members, pairs),
        retried=_retries_of_members(traffic, job_members, window, settings.diagnosis.chance_within(window.length_ns)),
        announced=announced(job_traffic.flows, flows, settings.traffic),
        index=traffic,
        elsewhere=elsewhere,
    )


def _storage_writes(traffic: TrafficIndex, topology: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    numbered, pairs = traffic.flows, traffic.pairs
    outside = pairs.filter(~pl.col("dst_addr").is_in(topology["addr"].implode()))
    written = outside.join(job_members.select("job_id", src_addr="addr"), on="src_addr").sort("pair")
    if written.is_empty():
        return pl.DataFrame(schema=STORAGE_SCHEMA)
    offsets = np.searchsorted(numbered["pair"].to_numpy(), np.arange(pairs.height + 1, dtype=np.int32))
    rows, within = grouped_sort.spread(offsets, written["pair"].to_numpy())
    of_pair = np.repeat(np.arange(written.height), np.diff(within))
    sent = numbered.select("flow_start_ns", "bytes")[rows]
    return sent.select(written["job_id"].gather(of_pair), "flow_start_ns", "bytes")


def _foreign_traffic(traffic: TrafficIndex, job_members: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    training = pairs.filter(pl.col("kind") != "other").select(nic_pairs.PAIR)
    foreign = traffic.pairs.join(training, on=nic_pairs.PAIR, how="anti").select("pair", *nic_pairs.PAIR)
    owners = job_members.select("addr", "job_id")
    ends = pl.concat([foreign.select("pair", addr=end) for end in nic_pairs.PAIR]).join(owners, on="addr")
    flows = traffic.bulk.select("pair", "flow_start_ns", "bytes").join(
        ends.select("pair").unique(), on="pair", how="semi"
    )
    moved = flows.join(ends, on="pair").select(list(FOREIGN_TRAFFIC_SCHEMA))
    return moved.sort("job_id", "addr", "flow_start_ns", "bytes").cast(pl.Schema(FOREIGN_TRAFFIC_SCHEMA))


def _retries_of_members(
    traffic: TrafficIndex, job_members: pl.DataFrame, window: Window, most_chance: float
) -> pl.DataFrame:
    """Return what members of one job tried in vain to send each other, in the window or the one before."""
    since_ns = window.start_ns - window.length_ns
    tries = retries.retried(traffic.flows.filter(pl.col("flow_start_ns") >= since_ns), most_chance, traffic.ports)
    members = job_members.select("job_id", "addr")
    for end in nic_pairs.PAIR:
        tries = tries.join(members.rename({"addr": end}), on=["job_id", end] if "job_id" in tries.columns else end)
    return tries.select(list(RETRIES_SCHEMA))


def _with_kinds(bulk: pl.DataFrame, traffic: TrafficIndex, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the flows of known pairs, with their `kind`."""
    kinds = pairs.drop_nulls("kind").select(*nic_pairs.PAIR, pl.col("kind").cast(PAIR_KIND_ENUM))
    return nic_pairs.flows_of_pairs(bulk, traffic.pairs.join(kinds, on=nic_pairs.PAIR).select("pair", "kind"))


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights as probabilities of three digits that add up to 1, the largest first; not all weights are 0."""
    whole = sum(weights.values())
    ordered = sorted(weights, key=lambda name: (-weights[name], name))
    rounded = {name: round(weights[name] / whole, 3) for name in ordered}
    rounded[ordered[0]] = round(1 - sum(rounded[name] for name in ordered[1:]), 3)
    return rounded


def as_likely(names: Collection[str], most: int = MOST_SUSPECTS) -> dict[str, float]:
    """Return subjects that the data do not tell apart with equal shares; none if they are more than `most`."""
    return shares(dict.fromkeys(names, 1.0)) if 0 < len(names) <= most else {}


def candidate_columns(odds: Mapping[str, float]) -> dict[str, list[str] | list[float] | None]:
    """Return the columns `candidates` and `odds` of a finding; NULL where there are none."""
    return {"candidates": list(odds) or None, "odds": list(odds.values()) or None}


def slowdown(history: pl.DataFrame, start_ns: int, end_ns: int) -> float:
    """Return by which ratio a job's steps in an interval are longer than its quick steps; 0 if they are not.

    Parameters
    ----------
    history : steps of one job, look-back included: `start_ns`, `end_ns`. The lower quartile is the quick step:
        a healthy one, as long as the fault has not lasted for most of the look-back
    """
    inside = (pl.col("end_ns") > start_ns) & (pl.col("end_ns") <= end_ns)
    lengths = history.select(inside=inside, length=pl.col("end_ns") - pl.col("start_ns"))
    within, quick = lengths.filter("inside")["length"].median(), lengths["length"].quantile(HEALTHY_STEP_QUANTILE)
    return 0.0 if within is None or not quick else max(float(within) / float(quick) - 1, 0.0)  # type: ignore[arg-type]


def _step_spans(steps: pl.DataFrame | None, *key: str) -> pl.DataFrame:
    """Let each step begin where the previous step of the same run ended.

    Without the step before it nobody knows where a step began. A NIC of whose synchronisation the records were lost has
    no end of that step, and what it does next would be taken for the work of two.
    """
    if steps is None:
        times = dict.fromkeys(("step_index", "start_ns", "end_ns"), pl.Int64)
        return pl.DataFrame(schema=dict.fromkeys(key, pl.String) | times | {"current": pl.Boolean})
    return (
        steps.sort(*key, "step")
        .with_columns(
            start_ns=completion.previous_end(*key),
            follows=pl.col("step") == pl.col("step").shift() + 1,
            current=completion.IN_WINDOW,
        )
        .filter("ended", "follows", pl.col("start_ns").is_not_null(), pl.col("start_ns") < pl.col("end_ns"))
        .select(*key, pl.col("step").alias("step_index"), "start_ns", "end_ns", "current")
    )
