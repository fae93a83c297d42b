"""The tiny models that are trained: real transformers, real gradients, and a wait in place of an accelerator.

Runs in the training processes, with PyTorch and without this project's package.
"""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

WIDTH = 256
HEADS = 4
VOCABULARY = 512

BACKWARD = 2.0
"""How much longer a layer's backward pass takes than its forward pass."""

SPARSITY = 16
"""One token in so many passes a layer, the others pass by it: two cores have to compute for eight NICs, and messages
should nevertheless be as large as all tokens make them."""


class Accelerator:
    """What computes in a rank's place.

    Attributes
    ----------
    factor : above 1 makes it that much slower
    jitter : standard deviation of its time, as a ratio of its mean
    """

    factor = 1.0
    jitter = 0.03


def accelerate(seconds: float) -> None:
    """Wait as long as an accelerator would compute."""
    seconds *= Accelerator.factor
    time.sleep(max(0.0, random.gauss(seconds, Accelerator.jitter * seconds)))


class AcceleratorTime(torch.autograd.Function):
    """The identity, which takes its time forward and backward."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        accelerate(seconds)
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        accelerate(BACKWARD * ctx.seconds)
        return gradients[0], None


class Layer(nn.Module):
    """A transformer layer for one token in `SPARSITY`, and the time that it would take."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        passing = hidden.clone()
        passing[:, ::SPARSITY] = self.block(hidden[:, ::SPARSITY])
        return AcceleratorTime.apply(passing, self.seconds)


class Stage(nn.Module):
    """Consecutive layers of a language model: tokens come in at its first stage, logits leave at its last."""

    def __init__(self, layers: list[nn.Module], *, first: bool, last: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH) if first else nn.Identity()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)) if last else nn.Identity()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(hidden)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


class AllToAll(torch.autograd.Function):
    """Send rows to the ranks of a group and receive theirs; gradients go the way back."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _exchanged(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _exchanged(gradients[0].contiguous(), ctx.received, ctx.sent, ctx.group), None, None, None


def _exchanged(rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    arriving = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(arriving, rows, received, sent, group=group)
    return arriving


class Routed(nn.Module):
    """A transformer layer and, of each token, how much a router likes each expert: what all ranks have alike."""

    def __init__(self, seconds: float, experts: int) -> None:
        super().__init__()
        self.layer, self.router = Layer(seconds), nn.Linear(WIDTH, experts)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.layer(hidden)
        liked = self.router(hidden)
        # Noise keeps the experts busy alike (Shazeer et al. 2017, https://arxiv.org/abs/1701.06538).
        return hidden, (liked + torch.randn_like(liked)).softmax(-1)


class Expert(nn.Module):
    """What one rank computes of the tokens that it is sent; one in `SPARSITY` passes it, the others pass by."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        passing = rows.clone()
        passing[::SPARSITY] = rows[::SPARSITY] + self.feed(rows[::SPARSITY])
        return passing


class ExpertLayer(nn.Module):
    """A layer whose tokens each go to the one expert that the router likes best, and come back (Fedus et al. 2021)."""

    def __init__(self, routed: nn.Module, expert: nn.Module, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.routed, self.expert, self.group, self.experts = routed, expert, group, group.size()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden, liked = self.routed(hidden)
        best, chosen = liked.flatten(0, -2).max(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=self.experts)
        sent, received = (
            counts.tolist(),
            _exchanged(counts, [1] * self.experts, [1] * self.experts, self.group).tolist(),
        )
        there = AllToAll.apply(hidden.flatten(0, -2)[order], sent, received, self.group)
        back = AllToAll.apply(self.expert(there), received, sent, self.group)
        own = torch.empty_like(back).index_copy(0, order, back) * best[:, None]
        return hidden + own.view_as(hidden)


class Spread(torch.autograd.Function):
    """The identity, whose gradients are added up over a tensor-parallel group (f of Shoeybi et al. 2019)."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class Added(torch.autograd.Function):
    """The sum over a tensor-parallel group, whose gradients are the identity (g of Shoeybi et al. 2019)."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        del ctx
        total = hidden.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        del ctx
        return gradients[0], None


class ParallelLayer(nn.Module):
    """A transformer layer whose heads and hidden units are divided among a tensor-parallel group."""

    def __init__(self, seconds: float, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.seconds, self.group = seconds, group
        self.heads = HEADS // group.size()
        share = WIDTH // group.size()
        self.norm, self.project, self.merge = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * share), nn.Linear(share, WIDTH)
        self.norm_feed = nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * share), nn.GELU(), nn.Linear(4 * share, WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        some = hidden[:, ::SPARSITY]
        batch, tokens, _ = some.shape
        projected = self.project(Spread.apply(self.norm(some), self.group))
        query, key, value = projected.view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        some = some + Added.apply(self.merge(attended.transpose(1, 2).reshape(batch, tokens, -1)), self.group)
        some = some + Added.apply(self.feed(Spread.apply(self.norm_feed(some), self.group)), self.group)
        passing = hidden.clone()
        passing[:, ::SPARSITY] = some
        return AcceleratorTime.apply(passing, self.seconds)


class Ring:
    """The ranks among which a sequence is split, in a circle.

    Each sends to the rank `direction` places further on, and receives from the one as far behind.
    """

    def __init__(self, group: dist.ProcessGroup, direction: int) -> None:
        ranks = dist.get_process_group_ranks(group)
        own = ranks.index(dist.get_rank())
        self.group, self.size = group, len(ranks)
        self.towards = ranks[(own + direction) % self.size]
        self.source = ranks[(own - direction) % self.size]

    def pass_on(self, block: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        """Begin to send a block on; what comes in its place is there when the returned work is done."""
        arriving = torch.empty_like(block)
        works = [
            dist.irecv(arriving, self.source, group=self.group),
            dist.isend(block, self.towards, group=self.group),
        ]
        return arriving, works


class RingAttention(torch.autograd.Function):
    """Attention over a sequence split among the ranks of a ring (Liu et al. 2023, https://arxiv.org/abs/2310.01889).

    Forward, the blocks of keys and values go once around while each rank attends to the block it holds; backward, they
    go around again together with their gradients, which arrive at their owner at the end. Not causal, so that all are
    busy alike.
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, ring: Ring, seconds: float
    ) -> torch.Tensor:
        block = torch.stack([key, value])
        output, total = torch.zeros_like(query), torch.full(query.shape[:-1], -torch.inf)
        for hop in range(ring.size):
            arriving, works = ring.pass_on(block) if hop < ring.size - 1 else (block, [])
            accelerate(seconds / ring.size)
            scores = query @ block[0].mT * query.shape[-1] ** -0.5
            part = scores.logsumexp(-1)
            updated = torch.logaddexp(total, part)
            attended = scores.softmax(-1) @ block[1]
            output = output * (total - updated).exp()[..., None] + attended * (part - updated).exp()[..., None]
            total = updated
            _wait(works)
            block = arriving
        ctx.save_for_backward(query, key, value, output, total)
        ctx.ring, ctx.seconds = ring, seconds
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, output, total = ctx.saved_tensors
        ring, scale = ctx.ring, query.shape[-1] ** -0.5
        above = gradients[0]
        inner = (above * output).sum(-1, keepdim=True)
        block = torch.stack([key, value])
        of_block, of_query = torch.zeros_like(block), torch.zeros_like(query)
        for hop in range(ring.size):
            arriving, works = ring.pass_on(block) if hop < ring.size - 1 else (block, [])
            accelerate(BACKWARD * ctx.seconds / ring.size)
            weights = (query @ block[0].mT * scale - total[..., None]).exp()
            of_scores = weights * (above @ block[1].mT - inner) * scale
            of_query += of_scores @ block[0]
            of_block = of_block + torch.stack([of_scores.mT @ query, weights.mT @ above])
            returning, more = ring.pass_on(of_block)
            _wait([*works, *more])
            block, of_block = arriving, returning
        return of_query, of_block[0], of_block[1], None, None


class RingLayer(nn.Module):
    """A transformer layer whose attention goes around a ring."""

    def __init__(self, seconds: float, ring: Ring) -> None:
        super().__init__()
        self.seconds, self.ring = seconds, ring
        self.norm, self.project, self.merge = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = hidden.shape
        projected = self.project(self.norm(hidden)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = (part.contiguous() for part in projected.permute(2, 0, 3, 1, 4))
        attended = RingAttention.apply(query, key, value, self.ring, self.seconds)
        hidden = hidden + self.merge(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        passing = hidden.clone()
        passing[:, ::SPARSITY] = hidden[:, ::SPARSITY] + self.feed(hidden[:, ::SPARSITY])
        return passing


def split(layers: list[nn.Module], stages: int) -> list[list[nn.Module]]:
    """Cut a model's layers into so many stages, as evenly as they go."""
    edges = [round(stage * len(layers) / stages) for stage in range(stages + 1)]
    return [layers[start:end] for start, end in pairwise(edges)]


def _wait(works: list[Any]) -> None:
    for work in works:
        work.wait()
