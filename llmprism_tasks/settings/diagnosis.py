"""Settings of diagnosis."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number

HOUR_NS = 3_600e9


@dataclass(frozen=True)
class DiagnosisSettings:
    """What is reported as a fault. A false alarm costs more than a late one."""

    least_effect: float = number(
        0.04,
        unit="ratio of the step",
        low=0,
        high=1,
        reason="effects below 4 % of the step time are lost in normal jitter",
    )
    sigmas: float = number(
        5.0,
        unit="robust deviations",
        low=1,
        high=100,
        reason="thousands of comparisons an hour need more than the usual three deviations",
    )
    least_steps: int = number(
        3, unit="steps", low=1, high=1000, reason="one slow step can be chance, three in a row are a fault"
    )
    persistence: float = number(
        0.7,
        unit="ratio of the steps",
        low=0,
        high=1,
        reason="a fault shows in most steps; jitter hits another rank each time",
    )
    noise_margin: float = number(
        3.0,
        unit="robust deviations",
        low=0,
        high=100,
        reason="an excess below this multiple of the job's own noise does not count as slow",
    )
    least_noise: float = number(
        0.01,
        unit="ratio",
        low=0,
        high=1,
        reason="healthy hosts differ by 1 % permanently; a smaller deviation would only inflate scores",
    )
    false_alarms_per_h: float = number(
        0.01,
        unit="per job and hour",
        low=1e-9,
        high=100,
        reason="how often chance may make a healthy job look ill in one way: one of a hundred jobs an hour",
    )
    least_single_s: float = number(
        1.0,
        unit="s",
        low=0,
        high=3600,
        reason="a single pause below a second, such as a garbage collection, is nothing to act on",
    )
    least_lasting_s: float = number(
        10.0, unit="s", low=0, high=3600, reason="a shorter slowdown is a pause: it is over by the time it is reported"
    )
    least_work_ms: float = number(
        2.0,
        unit="ms",
        low=0,
        high=10_000,
        reason="clocks of switches differ by up to a millisecond: a shorter computation measures the clocks, "
        "not the host",
    )
    uneven_stage: float = number(
        0.15,
        unit="ratio of a pass",
        low=0,
        high=10,
        reason="stages differ by one layer where layers do not divide evenly: one in eight",
    )
    uneven_last: float = number(
        0.25,
        unit="ratio of a pass",
        low=0,
        high=10,
        reason="the last stage computes the loss, too: with a vocabulary of 16 times the hidden size, 2.7 of "
        "ten layers",
    )
    least_stall: float = number(
        0.1, unit="ratio of the step", low=0, high=10, reason="a shorter pause is within the jitter of steps"
    )
    least_uneven: float = number(
        0.35,
        unit="ratio of the step",
        low=0,
        high=1,
        reason="samples whose lengths differ by a fifth cost 16 replicas a quarter of the step, 64 a third: "
        "usual and known",
    )
    least_checkpoint: float = number(
        0.1,
        unit="ratio of the steps from one to the next",
        low=0,
        high=10,
        reason="saving every minute costs several percent, by choice; a tenth of the time is worth reporting",
    )
    least_bytes: int = number(
        250_000,
        unit="bytes",
        low=1,
        high=10**12,
        reason="least size of a record whose pace is judged: buffers pass tens of kB at any rate, clocks err by 1 us",
    )
    own_bytes: int = number(
        1_000_000,
        unit="bytes",
        low=1,
        high=10**12,
        reason="least size of the first record of a step: empty queues take hundreds of kB at any rate",
    )
    slow_rate: float = number(
        1.25,
        unit="ratio",
        low=1.01,
        high=100,
        reason="the pace of a healthy path varies by a few percent; a degraded device halves it",
    )
    latent_rate: float = number(
        1.5,
        unit="ratio",
        low=1.01,
        high=100,
        reason="a device that costs no time is told from this ratio of its pace to that of its peers: lanes and hosts "
        "that are well differ by less, and a half-rate link by more",
    )

    def chance_within(self, length_ns: float) -> float:
        """Return the chance at which something healthy may be reported in a time, by `false_alarms_per_h`."""
        return min(self.false_alarms_per_h * length_ns / HOUR_NS, 0.5)
