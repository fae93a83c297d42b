"""Platforms on which something goes wrong, drawn by a seed; what it does follows from the order of operations.

Kinds go by turns: seeds 2n and 2n + 1 have the n-th.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from accuracy.second_source.folder import STORAGE, Bulk, Fault, Platform, nic
from accuracy.second_source.network import Slow, link_name
from accuracy.second_source.training import Training

END_S = 238.0
HOSTS, WELL_HOSTS, SPARE_HOST, GPUS = 8, 4, 12, 8
"""The job that falls ill has the first hosts on two leaves, another one those on the third; one host is spare."""

RATE = 6e9
"""Bytes per second of a NIC: so slow that the network has a part in each step."""

ONSET_S = (70.0, 115.0)
LASTS_S = (60.0, 110.0)

NETWORK = ("degraded_link", "degraded_switch", "slow_network")
SAVES = ("checkpoint_stall",)
PAUSES = ("checkpoint_stall", "stalls", "cross_step")
"""What a pause may be called where no write to a storage shows that it is a checkpoint."""


@dataclass(frozen=True)
class Drawn:
    """A platform and the same without its faults."""

    ill: Platform
    well: Platform


Strike = Callable[[np.random.Generator, Platform], Platform]
"""Strikes the first job of a platform, or a device that it uses."""


def draw(seed: int) -> Drawn:
    """Return what a seed draws."""
    rng = np.random.default_rng([seed, 29])
    strike = tuple(STRIKES.values())[seed // 2 % len(STRIKES)]
    well = _platform(rng)
    if strike in PREPARED:
        well = PREPARED[strike](rng, well)
    return Drawn(strike(rng, well), well)


def healthy(seed: int) -> Platform:
    """Return ten minutes of eight jobs with which nothing is wrong: pauses, checkpoints, copies, ends in order."""
    rng = np.random.default_rng([seed, 31])
    jobs, bulk = [], []
    for number in range(8):
        hosts = range(4 * number, 4 * number + 4)
        job = _job(rng, f"job{number}", hosts, 598.0)
        if number % 2:
            job = replace(job, save_every=int(rng.integers(10, 30)), save_s=float(rng.uniform(0.5, 3.0)),
                          save_bytes=1e9, storage=STORAGE)  # fmt: skip
        if number % 3 == 0:
            job = replace(job, lengths=float(rng.uniform(0.05, 0.2)), unevenness=float(rng.uniform(0.02, 0.2)))
        if number % 4 == 1:
            job = replace(job, in_order=True, end_s=float(rng.uniform(250, 500)))
        jobs.append(job)
    for _ in range(8):
        src, dst = rng.choice(32, 2, replace=False)
        start = float(rng.uniform(0, 500))
        bulk.append(Bulk(nic(int(src), 0), nic(int(dst), 0), start, start + float(rng.uniform(5, 60)), 0.1))
    return Platform(jobs, hosts=32, rate=RATE, inner=True, spines=2, lost=0.001, bulk=bulk, end_s=598.0)


def _job(rng: np.random.Generator, name: str, hosts: range, end_s: float) -> Training:
    """Draw a job whose gradients take a share of each step that no computing hides."""
    pp = int(rng.choice([1, 1, 2, 4]))
    micro_batches = pp * int(rng.choice([2, 4])) if pp > 1 else int(rng.choice([1, 2]))
    layers, step = 8, float(rng.uniform(1.5, 5.0))
    sync, computing = step * rng.uniform(0.15, 0.4), step * rng.uniform(0.6, 0.8)
    nics = tuple(nic(host, gpu) for host in hosts for gpu in range(GPUS))
    return Training(
        name, "1f1b", nics, float(rng.uniform(0, 8)), end_s, tp=GPUS, pp=pp, micro_batches=micro_batches,
        layers=layers, layer_s=computing / (micro_batches + pp - 1) / layers / 3, layer_bytes=sync * RATE / 2 / 11,
        bucket_bytes=sync * RATE / 2 / float(rng.choice([1, 3])), overlap=bool(rng.integers(2)),
        activation_bytes=float(rng.uniform(0.01, 0.04)) * step * RATE / micro_batches,
        channels=int(rng.choice([1, 2, 4])), jitter=float(rng.uniform(0.005, 0.03)),
    )  # fmt: skip


def _platform(rng: np.random.Generator) -> Platform:
    ill = _job(rng, "ill", range(HOSTS), END_S)
    well = _job(rng, "well", range(HOSTS, HOSTS + WELL_HOSTS), END_S)
    spines, idle_s = int(rng.choice([2, 3])), float(rng.choice([0.001, 0.005]))
    return Platform(
        [ill, well],
        hosts=SPARE_HOST + 1,
        rate=RATE,
        inner=True,
        spines=spines,
        lost=0.001,
        idle_s=idle_s,
        end_s=END_S,
    )


def _span(rng: np.random.Generator) -> tuple[float, float]:
    start = float(rng.uniform(*ONSET_S))
    return start, min(END_S, start + float(rng.uniform(*LASTS_S)))


def _changed(platform: Platform, fault: Fault, **of_job: object) -> Platform:
    ill = replace(platform.jobs[0], **of_job)  # type: ignore[arg-type]
    return replace(platform, jobs=[ill, *platform.jobs[1:]], faults=[fault])


def _host_of(addr: str) -> str:
    _, pod, host, _ = addr.split(".")
    return f"host-{int(pod) * 250 + int(host)}"


def _peers(job: Training, rank: int) -> tuple[str, ...]:
    """Return who cannot be told from a rank: its host, and the tensor-parallel ranks that wait for it in each layer."""
    first = rank - rank % job.tp
    peers = job.nics[first : first + job.tp]
    return (f"host:{_host_of(job.nics[rank])}", *(f"addr:{one}" for one in peers if one != job.nics[rank]))


def slow_gpu(rng: np.random.Generator, platform: Platform) -> Platform:
    """A GPU computes 1.3 to 2.5 times as long."""
    job, (start, end), factor = platform.jobs[0], _span(rng), float(rng.uniform(1.3, 2.5))
    rank = int(rng.integers(len(job.nics)))
    fault = Fault("slow_gpu", job.name, "addr", job.nics[rank], start, end, factor, _peers(job, rank),
                  ("slow_compute",), halved=factor >= 2)  # fmt: skip
    return _changed(platform, fault, slow=((rank, start, end, factor),))


def slow_nic(rng: np.random.Generator, platform: Platform) -> Platform:
    """A NIC has a half to an eighth of its rate."""
    job, (start, end), share = platform.jobs[0], _span(rng), 1 / int(rng.choice([2, 3, 5, 8]))
    addr = job.nics[int(rng.integers(len(job.nics)))]
    fault = Fault("slow_nic", job.name, "addr", addr, start, end, share, (f"host:{_host_of(addr)}",),
                  ("slow_nic", "latent"), halved=True)  # fmt: skip
    return replace(_changed(platform, fault), slow=[Slow(f"addr:{addr}", start, end, share)])


def slow_link(rng: np.random.Generator, platform: Platform) -> Platform:
    """One link between a leaf and a spine has a third to an eighth of its rate, both ways."""
    (start, end), share = _span(rng), 1 / int(rng.choice([3, 5, 8]))
    name = link_name(f"leaf{int(rng.integers(2))}", f"spine{int(rng.integers(platform.spines))}")
    fault = Fault("degraded_link", "", "link", name, start, end, share, (), (*NETWORK, "latent"), halved=True)
    return replace(_changed(platform, fault), slow=[Slow(f"link:{name}", start, end, share)])


def shared_uplink(rng: np.random.Generator, platform: Platform) -> Platform:
    """The only way out of a leaf, which every ring takes, has an eighth of its rate."""
    (start, end), leaf = _span(rng), f"leaf{int(rng.integers(2))}"
    name = link_name(leaf, "spine0")
    also = ("switch:leaf0", "switch:leaf1", "switch:spine0", f"link:{link_name('leaf0', 'spine0')}",
            f"link:{link_name('leaf1', 'spine0')}", f"job:{platform.jobs[0].name}")  # fmt: skip
    fault = Fault("degraded_link", "", "link", name, start, end, 1 / 8, also, NETWORK, halved=True)
    return replace(_changed(platform, fault), slow=[Slow(f"link:{name}", start, end, 1 / 8)])


def slow_leaf(rng: np.random.Generator, platform: Platform) -> Platform:
    """A leaf switch has a fifth to two fifths of its rate."""
    (start, end), share, leaf = _span(rng), float(rng.uniform(0.2, 0.4)), f"leaf{int(rng.integers(2))}"
    fault = Fault("degraded_switch", "", "switch", leaf, start, end, share, (), (*NETWORK, "switch_level", "latent"),
                  halved=True)  # fmt: skip
    return replace(_changed(platform, fault), slow=[Slow(f"switch:{leaf}", start, end, share)])


def slow_spine(rng: np.random.Generator, platform: Platform) -> Platform:
    """A spine switch has."""
    (start, end), share = _span(rng), float(rng.uniform(0.2, 0.4))
    spine = f"spine{int(rng.integers(platform.spines))}"
    fault = Fault("degraded_switch", "", "switch", spine, start, end, share, (), (*NETWORK, "switch_level", "latent"),
                  halved=True)  # fmt: skip
    return replace(_changed(platform, fault), slow=[Slow(f"switch:{spine}", start, end, share)])


def collision(rng: np.random.Generator, platform: Platform) -> Platform:
    """What crosses one link one way, behind many rings, has a half or a third of its rate."""
    (start, end), share = _span(rng), 1 / int(rng.choice([2, 3]))
    leaf, spine = f"leaf{int(rng.integers(2))}", f"spine{int(rng.integers(platform.spines))}"
    name = link_name(leaf, spine)
    fault = Fault("ecmp_collision", "", "link", name, start, end, share, (), ("congestion", *NETWORK, "latent"),
                  halved=True)  # fmt: skip
    return replace(_changed(platform, fault), slow=[Slow(f"hop:{leaf} > {spine}", start, end, share)])


def flap(rng: np.random.Generator, platform: Platform) -> Platform:
    """A NIC's link is all but gone for three seconds, once."""
    job, start = platform.jobs[0], float(rng.uniform(*ONSET_S))
    addr = job.nics[int(rng.integers(len(job.nics)))]
    fault = Fault("link_flap", job.name, "addr", addr, start, start + 3.0, 0.005, (f"host:{_host_of(addr)}",),
                  ("link_flap", "slow_nic", "cross_step"))  # fmt: skip
    return replace(_changed(platform, fault), slow=[Slow(f"addr:{addr}", start, start + 3.0, 0.005)])


def one_stall(rng: np.random.Generator, platform: Platform) -> Platform:
    """All ranks wait for a checkpoint once, for ten seconds; what they write is seen in one of two cases."""
    job, start = platform.jobs[0], float(rng.uniform(*ONSET_S))
    seen = bool(rng.integers(2))
    fault = Fault(
        "checkpoint_stall", job.name, "job", job.name, start, start + 20.0, 10.0, (), SAVES if seen else PAUSES
    )
    return _changed(platform, fault, stall=(start, 10.0), save_bytes=4e9 if seen else 0.0, storage=STORAGE)


def hang(rng: np.random.Generator, platform: Platform) -> Platform:
    """A rank does nothing more; the others go on until they wait for it, which lasts until the data end."""
    job, start = platform.jobs[0], float(rng.uniform(*ONSET_S))
    rank = int(rng.integers(len(job.nics)))
    fault = Fault("hang", job.name, "addr", job.nics[rank], start, END_S, 1.0, _peers(job, rank), ("hang",))
    return _changed(platform, fault, silent=(rank, start))


def crash(rng: np.random.Generator, platform: Platform) -> Platform:
    """A rank dies, and its job within a second or so."""
    job, start = platform.jobs[0], float(rng.uniform(*ONSET_S))
    rank = int(rng.integers(len(job.nics)))
    accept = (f"job:{job.name}", *_peers(job, rank))
    fault = Fault("crash", job.name, "addr", job.nics[rank], start, END_S, 1.0, accept, ("stopped", "hang"))
    return _changed(platform, fault, silent=(rank, start), end_s=start + float(rng.uniform(0.1, 1.5)))


def ended(rng: np.random.Generator, platform: Platform) -> Platform:
    """A job ends in order, after a whole step."""
    job, start = platform.jobs[0], float(rng.uniform(*ONSET_S))
    fault = Fault("ended", job.name, "job", job.name, start, END_S, 1.0, (), ("ended", "stopped"))
    return _changed(platform, fault, end_s=start, in_order=True)


def late_data(rng: np.random.Generator, platform: Platform) -> Platform:
    """The data of one rank come late, by a wait at each step's start that is as long as half a step on average."""
    job, (start, end) = platform.jobs[0], _span(rng)
    rank = int(rng.integers(len(job.nics) // job.pp))
    mean = 0.5 * job.layers * job.layer_s * 3 * (job.micro_batches + job.pp - 1)
    fault = Fault("slow_data_loader", job.name, "addr", job.nics[rank], start, end, mean, _peers(job, rank),
                  ("stalls", "slow_compute"))  # fmt: skip
    return _changed(platform, fault, loader=((rank, start, end, mean),))


def _saving(rng: np.random.Generator, platform: Platform) -> Platform:
    """Let the job save what it has every twenty seconds or so, in about a second."""
    job = platform.jobs[0]
    step = job.layers * job.layer_s * 3 * (job.micro_batches + job.pp - 1) / 0.7
    every = max(3, round(float(rng.uniform(15, 25)) / step))
    saving = replace(job, save_every=every, save_s=1.0, save_bytes=2e9, storage=STORAGE)
    return replace(platform, jobs=[saving, *platform.jobs[1:]])


def slow_storage(rng: np.random.Generator, platform: Platform) -> Platform:
    """From some time on each checkpoint takes six to twelve seconds, not one."""
    job, start, seconds = platform.jobs[0], float(rng.uniform(*ONSET_S)), float(rng.uniform(6, 12))
    fault = Fault("checkpoint_stall", job.name, "job", job.name, start, END_S, seconds, (), SAVES)
    return _changed(platform, fault, slow_saves=((start, END_S, seconds),))


def replaced(rng: np.random.Generator, platform: Platform) -> Platform:
    """A job is cut off and comes back after a while with one host replaced."""
    job, start = platform.jobs[0], float(rng.uniform(*ONSET_S))
    gone, again = int(rng.integers(HOSTS)), start + float(rng.uniform(20, 40))
    nics = tuple(nic(SPARE_HOST, place % GPUS) if place // GPUS == gone else one for place, one in enumerate(job.nics))
    fault = Fault("replaced", job.name, "job", job.name, start, again, 1.0, (f"host:host-{gone}",),
                  ("stopped", "ended", "hang"))  # fmt: skip
    before, after = replace(job, end_s=start), replace(job, nics=nics, start_s=again)
    return replace(platform, jobs=[before, *platform.jobs[1:], after], faults=[fault])


def _one_way_out(rng: np.random.Generator, platform: Platform) -> Platform:
    del rng
    return replace(platform, spines=1)


STRIKES: Mapping[str, Strike] = {
    one.__name__: one
    for one in (
        slow_gpu, slow_nic, slow_link, slow_leaf, slow_spine, collision, shared_uplink, flap, one_stall, hang, crash,
        ended, late_data, slow_storage, replaced,
    )
}  # fmt: skip
PREPARED: Mapping[Strike, Strike] = {slow_storage: _saving, shared_uplink: _one_way_out}
"""What a platform has to have before it is struck, also in its healthy twin."""
