"""Run a scenario on the emulated cluster: packets into `capture/`, what its processes logged into `logs/`."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import cluster
from setups import Fault, Job, Scenario, Traffic

HERE = Path(__file__).resolve().parent
SNAP_BYTES = 96
"""Ethernet, IP and TCP headers with options fit; payload is not kept."""

CARRIES_PAYLOAD = "(udp or tcp and ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) > 0)"
PRIORITY = ("nice", "-n", "-5")
"""Ranks and tcpdump go before whatever else the machine does."""

CORES = Path("/sys/fs/cgroup/cpu")
"""Where shares of a core are given out (cgroups v1)."""

PERIOD_US = 100_000
DOWN_MBIT = 0.008
"""A link that is as good as down: a packet in nine seconds."""

PATIENCE_S = 480.0
"""Seconds after which a capture that has not ended is given up."""

log = logging.getLogger(__name__)


@dataclass
class Running:
    """Processes by what they are: (job, addr) for ranks, any name for the others, and the faults there were."""

    folder: Path
    python: str
    ranks: dict[tuple[str, str], subprocess.Popen[bytes]] = field(default_factory=dict)
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    faults: list[dict[str, object]] = field(default_factory=list)
    launched: list[dict[str, object]] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)


def run(scenario: Scenario, folder: Path, python: str) -> None:
    """Build the cluster, capture until all jobs have ended, and take the cluster down again.

    Parameters
    ----------
    folder : gets `capture/<switch>.pcap` and `logs/`
    python : an interpreter that has PyTorch
    """
    for part in ("capture", "logs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    cluster.build()
    state = Running(folder, python)
    dumps = [_dump(folder / "capture", switch) for switch in cluster.SWITCHES]
    try:
        for node in cluster.NODES.values():
            state.others.append(_start(node.addr, ["python3", str(HERE / "traffic.py"), "sink"], folder / "logs/sink"))
        _follow(_agenda(scenario, state), state, scenario)
    finally:
        for process in (*state.ranks.values(), *state.others):
            process.kill()
        time.sleep(0.5)
        for share in CORES.glob("llmprism-*"):
            share.rmdir()
        for dump in dumps:
            dump.terminate()
            log.info("%s", dump.communicate()[1].decode().strip().replace("\n", "; "))
        cluster.destroy()
    (folder / "logs" / "faults.json").write_text(json.dumps(state.faults))
    (folder / "logs" / "launched.json").write_text(json.dumps(state.launched))


Agenda = list[tuple[float, Callable[[], None]]]


def _agenda(scenario: Scenario, state: Running) -> Agenda:
    """Return what is to be done at which second, in order."""
    agenda: Agenda = [(job.start_s, lambda job=job: _launch(job, state)) for job in scenario.jobs]  # type: ignore[misc]
    for number, traffic in enumerate(scenario.traffic):
        agenda.append((traffic.start_s, lambda t=traffic, n=number: _send(t, n, state)))  # type: ignore[misc]
    for fault in scenario.faults:
        (job,) = (job for job in scenario.jobs if job.name == fault.job)
        agenda += _fault_agenda(fault, job.addrs.index(fault.addr), state)
    return sorted(agenda, key=lambda entry: entry[0])


def _fault_agenda(fault: Fault, place: int, state: Running) -> Agenda:
    """Return when a trouble of the rank at a place in its job begins and when it ends."""
    of_link = fault.kind == "limited_uplink"
    noted: dict[str, object] = {
        "kind": {"throttled_rank": "slow_rank"}.get(fault.kind, fault.kind),
        "job": fault.job,
        "subject_type": "link" if of_link else "addr",
        "subject": cluster.uplink(fault.addr) if of_link else fault.addr,
        "severity": fault.severity,
    }
    begin, end = _trouble(fault, place, state)

    def note_and_begin() -> None:
        noted["start_ns"] = time.time_ns()
        state.faults.append(noted)
        begin()

    def note_and_end() -> None:
        noted["end_ns"] = time.time_ns()
        end()

    return [(fault.start_s, note_and_begin), (fault.start_s + fault.seconds, note_and_end)]


def _trouble(fault: Fault, place: int, state: Running) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what begins and what ends a trouble."""

    def signalled(number: signal.Signals) -> None:
        state.ranks[fault.job, fault.addr].send_signal(number)

    def killed() -> None:
        state.killed.add(fault.job)
        signalled(signal.SIGKILL)

    def buried() -> None:
        for (job, _), process in state.ranks.items():
            if job == fault.job:
                process.kill()

    def slowed() -> None:
        # Renamed into place: a rank must never read half of it.
        slow.with_suffix(".new").write_text(str(fault.severity))
        slow.with_suffix(".new").rename(slow)

    def throttled() -> None:
        share.mkdir(exist_ok=True)
        (share / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (share / "cpu.cfs_quota_us").write_text(str(round(fault.severity * PERIOD_US)))
        (share / "cgroup.procs").write_text(str(state.ranks[fault.job, fault.addr].pid))

    def unthrottled() -> None:
        (share / "cpu.cfs_quota_us").write_text("-1")

    share = CORES / f"llmprism-{fault.job}-{place}"
    slow = state.folder / "logs" / f"{fault.job}-{place}.slow"
    full = cluster.NIC_MBIT
    return {
        "limited_nic": (
            lambda: cluster.limit(fault.addr, full * fault.severity),
            lambda: cluster.limit(fault.addr, full),
        ),
        "limited_uplink": (
            lambda: cluster.limit_uplink(fault.addr, full * fault.severity),
            lambda: cluster.limit_uplink(fault.addr, None),
        ),
        "link_flap": (
            lambda: cluster.limit(fault.addr, DOWN_MBIT),
            lambda: cluster.limit(fault.addr, full),
        ),
        "slow_storage": (
            lambda: cluster.limit(cluster.STORAGE.addr, full * fault.severity),
            lambda: cluster.limit(cluster.STORAGE.addr, cluster.STORAGE_MBIT),
        ),
        "slow_rank": (slowed, slow.unlink),
        "throttled_rank": (throttled, unthrottled),
        "stopped_rank": (lambda: signalled(signal.SIGSTOP), lambda: signalled(signal.SIGCONT)),
        "killed_rank": (killed, buried),
    }[fault.kind]


def _follow(agenda: Agenda, state: Running, scenario: Scenario) -> None:
    """Do what is due until all ranks have ended; a rank that fails though nobody killed its job ends the capture."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        while agenda and time.monotonic() - began >= agenda[0][0]:
            agenda.pop(0)[1]()
        failed = [rank for rank, process in state.ranks.items() if process.poll() and rank[0] not in state.killed]
        if failed:
            raise RuntimeError(f"ranks that failed: {failed}; see logs/*.stderr in {state.folder}")
        started = len(state.launched) == sum(len(job.addrs) for job in scenario.jobs)
        waited = time.monotonic() - began >= scenario.seconds
        if waited and started and all(process.poll() is not None for process in state.ranks.values()):
            return
        time.sleep(0.02)
    raise TimeoutError(f"jobs still train after {PATIENCE_S:.0f} s")


def _launch(job: Job, state: Running) -> None:
    file = state.folder / "logs" / f"{job.name}.json"
    file.write_text(json.dumps({**asdict(job), "storage": cluster.STORAGE.addr}))
    for rank, addr in enumerate(job.addrs):
        stem = state.folder / "logs" / f"{job.name}-{rank}"
        command = [state.python, str(HERE / "train.py"), str(file), str(rank), f"{stem}.jsonl"]
        state.launched.append({"job": job.name, "addr": addr, "start_ns": time.time_ns()})
        state.ranks[job.name, addr] = _start(addr, [*PRIORITY, *command], stem)


def _send(traffic: Traffic, number: int, state: Running) -> None:
    stem = state.folder / "logs" / f"{traffic.kind}-{number}-{traffic.src}"
    seconds, out = str(traffic.seconds), f"{stem}.jsonl"
    if traffic.kind == "chatter":
        arguments = ["chatter", str(number), seconds, out, *traffic.dst]
    else:
        arguments = ["copy", traffic.dst[0], seconds, str(traffic.mbit), out]
    state.others.append(_start(traffic.src, ["python3", str(HERE / "traffic.py"), *arguments], stem))


def _start(addr: str, command: list[str], stem: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    with stem.with_name(stem.name + ".stderr").open("ab") as errors:
        return subprocess.Popen(
            cluster.inside(cluster.NODES[addr], command), env=environment, stdout=errors, stderr=errors
        )


def _dump(folder: Path, switch: str) -> subprocess.Popen[bytes]:
    command = ["tcpdump", "-i", switch, "-s", str(SNAP_BYTES), "-B", "65536", "-n", "-Z", "root"]
    command += ["--time-stamp-precision=nano", "-w", str(folder / f"{switch}.pcap"), CARRIES_PAYLOAD]
    return subprocess.Popen(
        ["ip", "netns", "exec", cluster.FABRIC, *PRIORITY, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
