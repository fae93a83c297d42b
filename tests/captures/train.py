"""One rank of a training job: `python train.py JOB.json RANK LOG`.

Runs in the namespace of its NIC, with PyTorch and without this project's package. Logs a line of JSON for its place in
the job, each step and each checkpoint, on the clock that the packets are stamped with.
"""

from __future__ import annotations

import io
import json
import math
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import models
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel

LOADING_S = 0.01
"""Seconds for the next batch to be loaded."""

NVLINK = "nvlink0"
"""The interface between the NICs of one host, as in cluster.py."""

SINK_PORT = 9100
"""Where storage takes what is written, as in traffic.py."""

PACED = 5
"""Steps after which rank 0 knows the pace, and says how many steps make the seconds that are asked for."""

Step = Callable[[torch.Tensor, torch.Tensor], Any]


class Layout:
    """Where a rank stands: rank = (pp_index * dp + dp_index) * tp + tp_index.

    Of the ranks of one stage, `ep` neighbours each hold other experts, or `cp` neighbours share a sequence.
    """

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        tp, dp, pp, ep, cp = (job[one] for one in ("tp", "dp", "pp", "ep", "cp"))
        ranks = range(tp * dp * pp)
        place, self.tp_index = divmod(rank, tp)
        self.pp_index, self.dp_index = divmod(place, dp)
        self.groups: dict[str, list[list[int]]] = {
            "pp": [[(s * dp + d) * tp + t for s in range(pp)] for d in range(dp) for t in range(tp)],
            "dp": [[(s * dp + d) * tp + t for d in range(dp)] for s in range(pp) for t in range(tp)],
            "tp": [list(ranks[at : at + tp]) for at in ranks[::tp]],
            "ep": [list(ranks[at : at + ep]) for at in ranks[::ep]],
            "expert_dp": [list(ranks[at::ep]) for at in range(ep)] if ep > 1 else [[one] for one in ranks],
            "cp": [list(ranks[at : at + cp]) for at in ranks[::cp]],
        }
        self.own = {kind: next(one for one in groups if rank in one) for kind, groups in self.groups.items()}

    def group(self, kind: str) -> dist.ProcessGroup:
        """Create everybody's groups of a kind, which all ranks have to do together, and return the rank's own."""
        created = [dist.new_group(ranks) for ranks in self.groups[kind]]
        return created[self.groups[kind].index(self.own[kind])]

    def inner_group(self, job: dict[str, Any]) -> dist.ProcessGroup | None:
        """Create the tensor-parallel groups on the links inside hosts; None without tensor parallelism."""
        if job["tp"] == 1:
            return None
        outer = os.environ["GLOO_SOCKET_IFNAME"]
        os.environ["GLOO_SOCKET_IFNAME"] = NVLINK
        group = self.group("tp")
        os.environ["GLOO_SOCKET_IFNAME"] = outer
        return group


def build(job: dict[str, Any], layout: Layout, log: Callable[..., None]) -> tuple[nn.Module, Step]:
    """Return what is trained on this rank, and how a step's gradients are computed and synchronised."""
    pp_group, dp_group, tp_group = layout.group("pp"), layout.group("dp"), layout.inner_group(job)
    if job["kind"] == "pipeline":
        return _pipeline(job, layout, pp_group, dp_group, tp_group)
    if job["kind"] == "ring":
        ring = models.Ring(layout.group("cp"), job["direction"])
        log("ring", towards=job["addrs"][ring.towards])
        layers: list[nn.Module] = [models.RingLayer(job["layer_s"], ring) for _ in range(job["layers"])]
    elif job["kind"] == "experts":
        layers = _expert_layers(job, layout, dp_group)
    else:
        layers = _layers(job, tp_group)
    model = models.Stage(layers, first=True, last=True)
    if job["kind"] == "fsdp":
        for layer in layers:
            fully_shard(layer)
        wrapped: nn.Module = fully_shard(model)
    elif job["kind"] == "experts":
        # Experts differ from rank to rank, so what is alike on all is replicated part by part.
        for part in ("embedding", "head"):
            replicated = _replicated(getattr(model, part), dp_group, bucket_mb=job["bucket_mb"], rebuild=False)
            setattr(model, part, replicated)
        wrapped = model
    else:
        wrapped = _replicated(model, dp_group, bucket_mb=job["bucket_mb"])

    def step(tokens: torch.Tensor, target: torch.Tensor) -> None:
        for _ in range(job["accumulate"] - 1):
            with wrapped.no_sync():
                models.loss(wrapped(tokens), target).backward()
        models.loss(wrapped(tokens), target).backward()

    return wrapped, step


def _layers(job: dict[str, Any], tp_group: dist.ProcessGroup | None) -> list[nn.Module]:
    if tp_group is None:
        return [models.Layer(job["layer_s"]) for _ in range(job["layers"])]
    return [models.ParallelLayer(job["layer_s"], tp_group) for _ in range(job["layers"])]


def _expert_layers(job: dict[str, Any], layout: Layout, dp_group: dist.ProcessGroup) -> list[nn.Module]:
    """Return layers with an expert a rank; ranks that hold the same experts share their gradients too."""
    ep_group, expert_dp_group = layout.group("ep"), layout.group("expert_dp")
    layers: list[nn.Module] = []
    for _ in range(job["layers"]):
        routed = models.Routed(job["layer_s"], job["ep"])
        expert: nn.Module = models.Expert()
        if job["ep"] < job["dp"]:
            expert = _replicated(expert, expert_dp_group, bucket_mb=job["bucket_mb"], rebuild=False)
        layers.append(
            models.ExpertLayer(
                _replicated(routed, dp_group, bucket_mb=job["bucket_mb"], rebuild=False), expert, ep_group
            )
        )
    return layers


def _pipeline(
    job: dict[str, Any],
    layout: Layout,
    pp_group: dist.ProcessGroup,
    dp_group: dist.ProcessGroup,
    tp_group: dist.ProcessGroup | None,
) -> tuple[nn.Module, Step]:
    count = job["pp"] * job["virtual"]
    shares = models.split(_layers(job, tp_group), count)
    modules, stages = [], []
    for index in range(layout.pp_index, count, job["pp"]):
        module: nn.Module = models.Stage(shares[index], first=index == 0, last=index == count - 1)
        if job["dp"] > 1:
            # DDP rebuilds its buckets once it knows the order of gradients, but fails to with several models on a rank.
            module = _replicated(module, dp_group, bucket_mb=job["bucket_mb"], rebuild=job["virtual"] == 1)
        modules.append(module)
        stages.append(PipelineStage(module, index, count, torch.device("cpu"), group=pp_group))
    if job["virtual"] > 1:
        schedule: Any = ScheduleInterleaved1F1B(stages, job["micro_batches"], loss_fn=models.loss)
    else:
        schedule = Schedule1F1B(stages[0], job["micro_batches"], loss_fn=models.loss)

    def step(tokens: torch.Tensor, target: torch.Tensor) -> None:
        arguments = (tokens,) if layout.pp_index == 0 else ()
        wanted = {"target": target} if layout.pp_index == job["pp"] - 1 else {}
        schedule.step(*arguments, **wanted)

    return nn.ModuleList(modules), step


def _replicated(module: nn.Module, group: dist.ProcessGroup, *, bucket_mb: float, rebuild: bool = True) -> nn.Module:
    return DistributedDataParallel(
        module, process_group=group, bucket_cap_mb=bucket_mb, find_unused_parameters=not rebuild
    )


def write_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer, storage: str) -> int:
    """Write everything the rank holds to storage, wait until it is there, and return its bytes."""
    image = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], image)
    with socket.create_connection((storage, SINK_PORT)) as connection:
        connection.sendall(image.getbuffer())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1):
            pass
    return image.getbuffer().nbytes


def slowness(file: Path) -> float:
    """Return the factor that a file holds, 1 as long as there is none."""
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return 1.0


def join(job: dict[str, Any], rank: int, log: Callable[..., None]) -> tuple[Layout, dist.TCPStore]:
    """Meet the other ranks and log the rank's place among them."""
    ranks = len(job["addrs"])
    store = dist.TCPStore(job["addrs"][0], job["port"], ranks, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=90))
    layout = Layout(job, rank)
    groups = {f"{kind}_group": [job["addrs"][member] for member in own] for kind, own in layout.own.items()}
    log(
        "rank",
        rank=rank,
        pp_index=layout.pp_index,
        dp_index=layout.dp_index // job["cp"],
        tp_index=layout.tp_index,
        ep_index=layout.dp_index % job["ep"],
        cp_index=layout.dp_index % job["cp"],
        **{name: addrs if len(addrs) > 1 else [] for name, addrs in groups.items()},
    )
    return layout, store


class Pace:
    """How many steps make the seconds that are asked for; rank 0 says so once it knows how long a step takes."""

    def __init__(self, seconds: float, store: dist.TCPStore) -> None:
        self.seconds, self.store = seconds, store
        self.began = self.warm = time.monotonic()
        self.steps = PACED + 1

    def after(self, step: int) -> None:
        """Take note of the end of a step; the first, which warms up, tells nothing."""
        now = time.monotonic()
        if step == 0:
            self.warm = now
        elif step == PACED - 1:
            if dist.get_rank() == 0:
                left, pace = self.seconds - (now - self.began), (now - self.warm) / step
                self.store.set("steps", str(PACED + max(0, round(left / pace))))
            self.steps = int(self.store.get("steps"))


def train(job: dict[str, Any], rank: int, log: Callable[..., None], slow: Path) -> None:
    """Train; as long as the file `slow` exists, compute by the factor in it more slowly."""
    torch.set_num_threads(1)
    torch.manual_seed(job["seed"])
    random.seed(1000 * job["seed"] + rank)
    layout, store = join(job, rank, log)
    model, forward_backward = build(job, layout, log)
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(model.parameters(), lr=1e-4)
        if job["optimizer"] == "sgd"
        else torch.optim.AdamW(model.parameters(), lr=1e-4)
    )
    models.Accelerator.jitter = job["jitter"]
    lengths = random.Random(job["seed"])  # seeded alike on all ranks: a step is as long on each of them
    batch = job["micro_batches"], job["tokens"]
    pace, step = Pace(job["seconds"], store), 0
    while step < pace.steps:
        start = time.time_ns()
        models.Accelerator.factor = slowness(slow) * math.exp(lengths.gauss(0.0, job["unevenness"]))
        tokens = torch.randint(models.VOCABULARY, batch)
        time.sleep(LOADING_S)
        optimizer.zero_grad()
        forward_backward(tokens, tokens.roll(-1, dims=1))
        optimizer.step()
        log("step", step=step, start_ns=start, end_ns=time.time_ns())
        if job["checkpoint_every"] and (step + 1) % job["checkpoint_every"] == 0:
            start = time.time_ns()
            written = write_checkpoint(model, optimizer, job["storage"])
            dist.barrier()
            log("checkpoint", step=step, start_ns=start, end_ns=time.time_ns(), bytes=written)
        if job["evaluate_every"] and (step + 1) % job["evaluate_every"] == 0:
            time.sleep(job["evaluation_s"])
        pace.after(step)
        step += 1
    dist.barrier()
    dist.destroy_process_group()


def main(job_file: str, rank: str, log_file: str) -> None:
    job = json.loads(Path(job_file).read_text())
    with Path(log_file).open("w") as lines:

        def log(event: str, **values: Any) -> None:
            # Flushed at once: a rank that is killed must have told what it did before.
            lines.write(json.dumps({"event": event, "addr": job["addrs"][int(rank)], **values}) + "\n")
            lines.flush()

        train(job, int(rank), log, Path(log_file).with_suffix(".slow"))


if __name__ == "__main__":
    main(*sys.argv[1:])
