"""What a job is: its layout, its work, its habits and its troubles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Training:
    """A job. Rank r has `nics[r]`; tensor-parallel ranks are neighbours, then replicas, then stages (Megatron-LM).

    Attributes
    ----------
    schedule : "ddp", "1f1b", "gpipe", "zero_bubble", "fsdp", "experts" or "ring"
    layers : of a stage
    layer_s : forward time of a layer and a micro-batch, s
    layer_bytes : gradients of a layer on one rank
    bucket_bytes : of gradients that are reduced together
    activation_bytes : what a micro-batch sends to the next stage; without stages a rank's tokens to all experts, or a
        block of a ring
    block_bytes : the same of tokens and blocks where there are stages
    head : bytes of what comes once a step (embedding, head), as a ratio of a layer's
    chunks : parts of the model on each stage; above 1 the schedule is interleaved
    ep, cp : neighbouring replicas that hold each other's experts, or share a sequence
    shard : neighbouring ranks that share parameters ("fsdp"); gradients are then reduced among those that hold the same
        share. 0: all ranks share them
    relayed : all-to-alls leave a host at the GPU on the receiver's rail
    algorithm : of all-reduces, "ring" or "tree"
    unevenness : sigma of the logarithm of a step's computing, alike on all ranks
    lengths : sigma of the logarithm of a micro-batch's computing, for each replica its own
    jitter : sigma of the logarithm of an operation on one rank
    tail : probability that a step takes longer by a Pareto-distributed ratio, alike on all ranks
    pause_every, pause_s : an evaluation after so many steps, so long
    save_every, save_s, save_bytes : a checkpoint after so many steps: how long all wait, and what each NIC writes to
        `storage` then (0: nothing is seen)
    in_order : the job ends after a whole step; otherwise it is cut off at `end_s`
    slow : factors on the computing of ranks: rank, from s, to s, factor
    slow_saves : from s, to s, seconds that a checkpoint takes then
    loader : a rank whose data come late: rank, from s, to s, mean seconds of an exponential wait at a step's start
    stall : once, at the first step's end after so many seconds, all wait for the storage so long
    silent : a rank that does nothing more from a time on: rank, at s
    """

    name: str
    schedule: str
    nics: tuple[str, ...]
    start_s: float
    end_s: float
    tp: int = 1
    pp: int = 1
    micro_batches: int = 1
    layers: int = 8
    layer_s: float = 0.02
    layer_bytes: float = 8e6
    bucket_bytes: float = 25e6
    activation_bytes: float = 4e6
    block_bytes: float = 4e6
    head: float = 1.5
    channels: int = 2
    chunks: int = 1
    ep: int = 1
    cp: int = 1
    shard: int = 0
    relayed: bool = False
    algorithm: str = "ring"
    optimizer_s: float = 0.02
    overlap: bool = True
    sharded_optimizer: bool = False
    unevenness: float = 0.0
    lengths: float = 0.0
    jitter: float = 0.02
    tail: float = 0.0
    pause_every: int = 0
    pause_s: float = 5.0
    save_every: int = 0
    save_s: float = 2.0
    save_bytes: float = 0.0
    storage: tuple[str, ...] = ()
    in_order: bool = False
    slow: tuple[tuple[int, float, float, float], ...] = ()
    slow_saves: tuple[tuple[float, float, float], ...] = ()
    loader: tuple[tuple[int, float, float, float], ...] = ()
    stall: tuple[float, float] | None = None
    silent: tuple[int, float] | None = None

    @property
    def dp(self) -> int:
        """How many replicas train."""
        return len(self.nics) // (self.tp * self.pp)

    def place(self, rank: int) -> tuple[int, int, int]:
        """Return a rank's stage, replica and tensor-parallel index."""
        stage, rest = divmod(rank, self.dp * self.tp)
        return stage, *divmod(rest, self.tp)

    def nic(self, stage: int, replica: int, tp_index: int) -> str:
        """Return the address of the NIC at a place of the layout."""
        return self.nics[(stage * self.dp + replica) * self.tp + tp_index]
