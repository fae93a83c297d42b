"""A job's run: cycles in a row on the clock, each under the faults that are there when it begins."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.scenario.faults import Fault
from llmprism_tasks.simulate.scenario.lifecycle import Allocation
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.steps.cycles import Cycles, run_cycles
from llmprism_tasks.simulate.steps.fault_effects import affects, conditions, pauses
from llmprism_tasks.simulate.steps.job_model import JobModel
from llmprism_tasks.simulate.steps.variation import Hang, with_hang, with_variation
from llmprism_tasks.simulate.traffic.startup import checkpoint_seconds, startup_seconds

PROBE_CYCLES = 8
SPARE_CYCLES = 8
SHORTEST = 0.88  # cycles are not this much shorter than the mean of the probe, for long, even where lengths vary

Faults = tuple[Fault, ...]


@dataclass(frozen=True)
class Run:
    """Consecutive cycles of a job.

    Attributes
    ----------
    cycles : each under its own conditions
    start_ns : when each cycle starts, and at last when the last one ends
    faults : what each cycle suffers
    saves : the cycles in which a checkpoint is written, when they have updated their parameters
    arrived_ns : when the job's first process came up
    begin_ns, end_ns : what its cycles send from the one on, and until the other, is sent
    left_ns : when the job leaves its GPUs
    ending : how it ends within the span: "", "crash" or "hang"
    hanging : the rank that hangs
    """

    model: JobModel
    cycles: Cycles
    start_ns: Indices
    faults: tuple[Faults, ...]
    saves: Indices
    arrived_ns: int = 0
    begin_ns: int = 0
    end_ns: int = 2**62
    left_ns: int = 2**62
    ending: str = ""
    hanging: int = 0


def step_ends(run: Run) -> tuple[Indices, Indices]:
    """Return when each cycle ends the step before it, parameters gathered, and when it has summed its gradients."""
    cycles, begin = run.cycles, run.start_ns[:-1]
    ended, summed = (begin + np.rint(times * 1e9).astype(np.int64) for times in (cycles.optimized, cycles.reduced))
    return ended, summed


def straight_run(scenario: Scenario, model: JobModel, *, seed: int, start_ns: int, length_ns: int) -> Run:
    """Run a job over a span; it began somewhat earlier, so that jobs don't keep step with each other."""
    states = _States(scenario, model)
    mean, phase_s = _rhythm(states, seed)
    span_s = length_ns / 1e9 + phase_s
    count = math.ceil(span_s / (SHORTEST * mean)) + SPARE_CYCLES
    stacked = states.run(_rng(seed, model, "run", 0), count)
    chosen = states.fault_sets(stacked, -phase_s, loop_s=math.inf)
    return _on_the_clock(states, stacked, chosen, start_ns - round(phase_s * 1e9))


def loop_run(scenario: Scenario, model: JobModel, *, seed: int, loop: int) -> Run:
    """Run a job through one loop of a feed without end: `loop` counts from the epoch.

    Each loop draws new jitter and meets the same faults. So that the rhythm goes on from loop to loop, as many whole
    cycles as fit are run, and what is left of the loop is spread evenly over them as a pause (well below 1 % of a
    step); the last cycle ends exactly where the next loop's first begins.
    """
    states = _States(scenario, model)
    mean, phase_s = _rhythm(states, seed)
    loop_s = scenario.loop_minutes * 60.0
    count = math.ceil(loop_s / (SHORTEST * mean)) + SPARE_CYCLES
    full = states.run(_rng(seed, model, "loop", loop), count)
    chosen = states.fault_sets(full, -phase_s, loop_s=loop_s)
    ends = np.cumsum(_lengths(full, chosen))
    count = max(1, int(np.searchsorted(ends, loop_s, side="right")))
    pause_s = 0.0
    for _ in range(4):  # a pause may move a cycle across a fault's edge, and with it the pause
        chosen = states.fault_sets(full, -phase_s, loop_s=loop_s, pause_s=pause_s)[:count]
        pause_s = (loop_s - float(_lengths(full, chosen).sum())) / count
    stacked = states.run(_rng(seed, model, "loop", loop), count, pause_s=pause_s)
    begin_ns = round((loop * loop_s - phase_s) * 1e9)
    run = _on_the_clock(states, stacked, chosen, begin_ns)
    last = round(((loop + 1) * loop_s - phase_s) * 1e9)
    return dataclasses.replace(run, start_ns=np.append(run.start_ns[:-1], max(last, run.start_ns[-2] + 1)))


def allocation_run(
    scenario: Scenario,
    model: JobModel,
    allocation: Allocation,
    *,
    seed: int,
    start_ns: int,
    length_ns: int,
    loop: int = 0,
) -> Run:
    """Run a job through an allocation that begins or ends inside a span, or through what the span has of it.

    It begins with what `startup` sends. Whole steps follow until the allocation ends, and the last one's parameters.
    """
    states = _States(scenario, model)
    mean, phase_s = _rhythm(states, seed)
    begin_s = allocation.start_s + startup_seconds(scenario, model) if allocation.start_s else -phase_s
    last_s = min(allocation.end_s, length_ns / 1e9)
    count = math.ceil(max(0.0, last_s - begin_s) / (SHORTEST * mean)) + SPARE_CYCLES
    stacked = states.run(_rng(seed, model, "stay", loop), count)
    chosen = states.fault_sets(stacked, begin_s, loop_s=math.inf)
    run = _on_the_clock(states, stacked, chosen, start_ns + round(begin_s * 1e9))
    ended, _ = step_ends(run)
    arrived_ns, last_ns = start_ns + round(allocation.start_s * 1e9), start_ns + round(last_s * 1e9)
    begin_ns = int(ended[0]) if allocation.start_s else arrived_ns
    run = dataclasses.replace(run, arrived_ns=arrived_ns, begin_ns=begin_ns, end_ns=last_ns, left_ns=last_ns)
    if allocation.end_s > last_s:
        return run
    if allocation.hanging >= 0:
        hang = _hang_at(run, last_ns, allocation.hanging)
        stacked = states.run(_rng(seed, model, "stay", loop), count, hang=hang)
        left_ns = start_ns + round(min(allocation.left_s, length_ns / 1e9) * 1e9)
        return _hung(_on_the_clock(states, stacked, chosen, int(run.start_ns[0])), run, left_ns, allocation.hanging)
    if allocation.crash:
        return dataclasses.replace(run, ending="crash")
    end_ns = int(ended[np.searchsorted(ended, last_ns)])
    return dataclasses.replace(run, end_ns=end_ns, left_ns=end_ns)


def pick(part: Any, chosen: Indices, among: Indices) -> Any:
    """Take `part[chosen[i], among[i]]` of every array in a (nested) dataclass."""
    if isinstance(part, np.ndarray):
        return part[chosen, among]
    return type(part)(**{name: pick(value, chosen, among) for name, value in vars(part).items()})


def cut(part: Any, cycles: Indices) -> Any:
    """Take some cycles of every array in a (nested) dataclass."""
    if isinstance(part, np.ndarray):
        return part[cycles]
    return type(part)(**{name: cut(value, cycles) for name, value in vars(part).items()})


class _States:
    """The few sets of faults a job ever meets; all cycles are timed under each, and each cycle takes its own."""

    def __init__(self, scenario: Scenario, model: JobModel) -> None:
        self.model = model
        self.habit = scenario.habit(model.job.name)
        self._saving_s = checkpoint_seconds(scenario, model)
        self._affecting = tuple(fault for fault in scenario.faults if affects(model, fault))
        edges = {0.0} | {fault.start_s for fault in self._affecting} | {fault.end_s for fault in self._affecting}
        met = [tuple(f for f in self._affecting if f.start_s <= edge < f.end_s) for edge in sorted(edges)]
        self.sets: list[Faults] = list(dict.fromkeys(itertools.chain([()], *map(_some, met))))
        self.conditions = [conditions(model, faults, scenario.fabric.gpus_per_host) for faults in self.sets]

    def active_at(self, time_s: float) -> Faults:
        return tuple(fault for fault in self._affecting if fault.active_at(time_s))

    def run(self, rng: np.random.Generator, count: int, *, pause_s: float = 0.0, hang: Hang | None = None) -> Cycles:
        """Time cycles under each set of faults, stacked along a new first axis, with the same jitter."""
        jitter = with_variation(self.model.jitter(count, rng), self.model.job, self.habit, rng.spawn(1)[0])
        if hang is not None:
            jitter = with_hang(jitter, self.model.job, hang)
        waits = np.full((count, 1), pause_s)
        waits[self.saves(count)] += self._saving_s
        chances, saves = rng.spawn(1)[0].random((count, 3)), self.saves(count)
        each = [
            run_cycles(self.model, state, jitter, waits + pauses(self.model.job, faults, saves, chances))
            for faults, state in zip(self.sets, self.conditions, strict=True)
        ]
        stacked: Cycles = _stack(each)
        return stacked

    def saves(self, count: int) -> Indices:
        """Return which of that many cycles wait for a checkpoint."""
        every = self.habit.checkpoint_steps
        return np.arange(every - 1, count, every) if every else np.empty(0, dtype=np.int64)

    def fault_sets(self, stacked: Cycles, start_s: float, *, loop_s: float, pause_s: float = 0.0) -> Indices:
        """Return which set of faults each cycle meets, cycle after cycle from a start relative to the scenario's."""
        number = {faults: index for index, faults in enumerate(self.sets)}
        lengths, time_s, chosen = stacked.length, start_s, []
        for cycle in range(lengths.shape[1]):
            chosen.append(number[self.active_at(max(time_s, 0.0) if loop_s == math.inf else time_s % loop_s)])
            time_s += float(lengths[chosen[-1], cycle]) + pause_s
        return np.array(chosen, dtype=np.int64)


def _hang_at(run: Run, time_ns: int, rank: int) -> Hang:
    cycle = int(np.searchsorted(run.start_ns, time_ns, side="right")) - 1
    begin, end = run.start_ns[cycle : cycle + 2]
    return Hang(cycle=cycle, done=float((time_ns - begin) / (end - begin)), rank=rank)


def _hung(hung: Run, well: Run, left_ns: int, rank: int) -> Run:
    """Let a run whose last cycle never ends leave its GPUs at last; until then it sends what does not wait."""
    return dataclasses.replace(
        hung,
        start_ns=np.minimum(hung.start_ns, left_ns),
        arrived_ns=well.arrived_ns,
        begin_ns=well.begin_ns,
        end_ns=left_ns,
        left_ns=left_ns,
        ending="hang",
        hanging=rank,
    )


def _some(faults: Faults) -> list[Faults]:
    """Return what may be there of faults of which some come and go."""
    lasting = [fault for fault in faults if not fault.every_s]
    passing = [fault for fault in faults if fault.every_s]
    some = itertools.chain.from_iterable(itertools.combinations(passing, n) for n in range(len(passing) + 1))
    return [tuple(fault for fault in faults if fault in (*lasting, *there)) for there in some]


def _stack(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts)
    return type(parts[0])(**{name: _stack([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def _lengths(stacked: Cycles, chosen: Indices) -> Reals:
    return np.asarray(stacked.length[chosen, np.arange(len(chosen))])


def _rng(seed: int, model: JobModel, purpose: str, loop: int) -> np.random.Generator:
    return np.random.default_rng([seed, loop, *f"{purpose} {model.job.name}".encode()])


def _rhythm(states: _States, seed: int) -> tuple[float, float]:
    """Return a healthy cycle's mean length, and how long before the run's start the job's first cycle began."""
    rng = _rng(seed, states.model, "rhythm", 0)
    mean = float(states.run(rng, PROBE_CYCLES).length[0].mean())
    return mean, round(float(rng.random()) * mean, 9)


def _on_the_clock(states: _States, stacked: Cycles, chosen: Indices, start_ns: int) -> Run:
    count = np.arange(len(chosen))
    cycles: Cycles = pick(stacked, chosen, count)
    relative = np.rint(np.cumsum(cycles.length) * 1e9).astype(np.int64)
    return Run(
        model=states.model,
        cycles=cycles,
        start_ns=start_ns + np.append(0, relative),
        faults=tuple(states.sets[index] for index in chosen),
        saves=states.saves(len(chosen)),
    )
