"""What a rank does, one operation after the other: a program that `steps.execution` plays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

FORWARD, BACKWARD, UPDATE, OVERHEAD = "forward", "backward", "update", "overhead"

# A micro-batch's activations, or their gradients: from one virtual pp_stage to another, of which micro-batch.
Transfer = tuple[int, int, int]


@dataclass(frozen=True)
class Compute:
    """Compute a share of a phase.

    `number` counts the micro-batches of a phase, chunk by chunk. `load` is the call of the router whose received
    tokens this takes as long as, or -1.
    """

    phase: str
    number: int = 0
    share: float = 1.0
    load: int = -1

    def part(self, share: float) -> Compute:
        """Return a share of this share."""
        return replace(self, share=self.share * share)


@dataclass(frozen=True)
class Post:
    """Be ready for transfers, as their sender or receiver, and go on."""

    transfers: tuple[Transfer, ...]


@dataclass(frozen=True)
class Wait:
    """Wait for transfers that were posted."""

    transfers: tuple[Transfer, ...]


@dataclass(frozen=True)
class Launch:
    """Begin a collective, or a hop in a ring of context-parallel ranks, and go on.

    Attributes
    ----------
    use : whose queue pairs carry it: a key of `Connections.by_use`
    key : a name of its own among the launches of the rank
    payload : bytes that each queue pair carries, unless a router decides
    load : which call of the router decides, or -1
    back : whether tokens come back from where the router sent them
    after : key of a launch whose end it waits for, while the rank goes on
    """

    use: str
    key: str
    payload: float = 0.0
    load: int = -1
    back: bool = False
    after: str = ""


@dataclass(frozen=True)
class Await:
    """Wait for a launch."""

    key: str


@dataclass(frozen=True)
class Mark:
    """Note the time under a name."""

    name: str


Operation = Compute | Post | Wait | Launch | Await | Mark
Program = list[Operation]


def launched_at(operations: Sequence[Operation], due: Sequence[tuple[float, Sequence[Operation]]]) -> Program:
    """Put operations where given ratios of the computing are done; `due` is sorted by ratio.

    A computation in which one falls is split there.
    """
    whole = sum(op.share for op in operations if isinstance(op, Compute))
    done, waiting, program = 0.0, list(due), Program()
    for op in operations:
        if not isinstance(op, Compute):
            program.append(op)
            continue
        left = op.share
        while waiting and waiting[0][0] * whole <= done + left * (1 + 1e-9):
            ratio, wanted = waiting.pop(0)
            piece = min(max(ratio * whole - done, 0.0), left)
            program += [*_some(op, piece), *wanted]
            done, left = done + piece, left - piece
        program += _some(op, left)
        done += left
    return program + [op for _, wanted in waiting for op in wanted]


def _some(op: Compute, share: float) -> Iterator[Compute]:
    if share > 1e-9:
        yield replace(op, share=share)
