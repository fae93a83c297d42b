"""A tenant's training job: its layout, its model, and how its framework moves what the ranks share."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number, text
from llmprism_tasks.simulate.scenario.sections import indices


@dataclass(frozen=True)
class Job:
    """A tenant training a transformer as Megatron-LM or, with `sharding`, PyTorch FSDP2 does.

    Ranks are in Megatron's order: tp, then cp, dp and pp. Experts are spread over ep ranks that are neighbours in the
    order of cp and dp.
    """

    name: str = text("", reason="the job's name in the truth")
    model: str = text("dense", reason="a word for the model, for people")
    hosts: tuple[int, ...] = indices("the hosts it runs on, in rank order")
    gpus: tuple[int, ...] = indices("which GPUs of each host; all when empty")
    tp: int = number(8, unit="GPUs", low=1, high=64, reason="tensor-parallel degree, always inside a host")
    cp: int = number(1, unit="ranks", low=1, high=64, reason="context-parallel degree: ranks that share a sequence")
    pp: int = number(1, unit="pp_stages", low=1, high=64, reason="pipeline-parallel degree")
    dp: int = number(1, unit="replicas", low=1, high=4096, reason="data-parallel degree")
    ep: int = number(1, unit="ranks", low=1, high=256, reason="ranks that share the experts; divides cp x dp")
    chunks: int = number(1, unit="chunks", low=1, high=16, reason="virtual pp_stages of a rank; interleaved above 1")
    layers: int = number(32, unit="layers", low=1, high=1024, reason="transformer layers, split evenly over pp_stages")
    hidden: int = number(4096, unit="elements", low=64, high=65536, reason="width of the model")
    vocabulary: int = number(32_000, unit="tokens", low=1, high=1_000_000, reason="rows of the embeddings")
    embeddings: str = text(
        "untied", choices=("untied", "tied"), reason="tied: input and output share one matrix, reduced between pp ends"
    )
    key_value_ratio: float = number(
        1.0, unit="ratio", low=0.01, high=1, reason="key and value heads per query head; grouped queries have fewer"
    )
    experts: int = number(0, unit="experts", low=0, high=4096, reason="experts of a MoE layer; 0 for a dense model")
    experts_per_token: int = number(
        2, unit="experts", low=1, high=64, reason="experts that the router sends a token to"
    )
    expert_hidden: int = number(0, unit="elements", low=0, high=262_144, reason="an expert's width; 0 takes 4 x hidden")
    moe_every: int = number(1, unit="layers", low=1, high=64, reason="every how many layers there are experts")
    router_imbalance: float = number(
        0.3, unit="log ratio", low=0, high=3, reason="standard deviation of the experts' popularity; 0 for equal sizes"
    )
    sequence: int = number(4096, unit="tokens", low=1, high=1_000_000, reason="tokens of a sample")
    sequence_spread: float = number(
        0.0,
        unit="log ratio",
        low=0,
        high=1,
        reason="standard deviation of the samples' lengths; 0 where all are padded",
    )
    micro_batch: int = number(1, unit="samples", low=1, high=1024, reason="samples of a micro-batch")
    micro_batches: int = number(
        8, unit="micro-batches", low=1, high=1024, reason="micro-batches of a step, per replica"
    )
    forward_ms: float = number(100.0, unit="ms", low=0.01, high=1e6, reason="forward of a micro-batch on one pp_stage")
    backward_ratio: float = number(2.0, unit="forwards", low=0.1, high=10, reason="backward computes twice as much")
    overhead_ms: float = number(5.0, unit="ms", low=0, high=1e6, reason="host time between steps: data, logging")
    sequence_parallel: str = text(
        "yes", choices=("yes", "no"), reason="whether TP peers send a slice of the activations each"
    )
    sharding: str = text(
        "none",
        choices=("none", "full"),
        reason="full: parameters are sharded, too, and gathered layer by layer (FSDP2, ZeRO-3)",
    )
    shard_ranks: int = number(
        0, unit="ranks", low=0, high=65536, reason="sharding: ranks that share a copy (HSDP); 0 for all of them"
    )
    reduce_every_micro_batch: str = text(
        "yes", choices=("yes", "no"), reason="sharding: no keeps whole gradients until the last micro-batch"
    )
    gradients: str = text("fp32", choices=("fp32", "bf16"), reason="the type that gradients are reduced in")
    gradient_sync: str = text(
        "overlap", choices=("overlap", "after"), reason="buckets during the last backward, or all at once after it"
    )
    optimizer: str = text(
        "distributed",
        choices=("distributed", "replicated"),
        reason="distributed: reduce-scatter, then all-gather of parameters; replicated: all-reduce",
    )
    overlap_param_gather: str = text(
        "no", choices=("yes", "no"), reason="distributed optimizer: gather bucket by bucket during the next forward"
    )
    bucket_parameters: int = number(
        0, unit="parameters", low=0, high=10**11, reason="0 takes Megatron's rule, max(40 M, 1 M x dp)"
    )
    algorithm: str = text(
        "ring", choices=("ring", "tree"), reason="how NCCL all-reduces; it has no tree for other collectives"
    )
    channels: int = number(2, unit="channels", low=1, high=64, reason="NCCL channels of a collective")
    peer_channels: int = number(
        2, unit="channels", low=1, high=64, reason="NCCL channels of a point-to-point connection"
    )
    queue_pairs: int = number(
        1, unit="queue pairs", low=1, high=16, reason="of a channel's connection (NCCL_IB_QPS_PER_CONNECTION)"
    )
    relay: str = text(
        "no",
        choices=("yes", "no"),
        reason="PXN: messages to another rail leave through the host's NIC on that rail; no: they cross rails",
    )

    clear_to_send: str = text(
        "unseen",
        choices=("seen", "unseen"),
        reason="whether receivers' small messages, which let senders go on, are in the records",
    )

    @property
    def ranks(self) -> int:
        """How many GPUs train: tp x cp x pp x dp."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def units(self) -> int:
        """Ranks of a pp_stage that hold the same dense parameters, each with its TP peers: cp x dp."""
        return self.cp * self.dp

    @property
    def sharded(self) -> bool:
        """Whether parameters are sharded too, as in ZeRO-3 and FSDP."""
        return self.sharding == "full"

    @property
    def shards(self) -> int:
        """Ranks that share one copy of a sharded model."""
        return self.shard_ranks or self.units

    @property
    def shards_of_states(self) -> int:
        """Ranks among which the optimizer's work on the same parameters is divided."""
        if self.sharded:
            return self.shards
        return self.units if self.optimizer == "distributed" else 1

    @property
    def shards_of_gradients(self) -> int:
        """Ranks among which a step's whole gradients are divided when their norm is taken."""
        return self.shards if self.sharded else 1

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient on the wire."""
        return 4 if self.gradients == "fp32" else 2


def misfit(job: Job) -> str:
    """Return what a job's settings should have been where they do not fit together, or nothing."""
    rules = (
        (
            len(job.gpus) % job.tp or job.layers % (job.pp * job.chunks),
            "tp that divides its GPUs of a host, and pp x chunks that divides its layers",
        ),
        (job.units % job.ep, "ep that divides cp x dp"),
        (job.ep > 1 and not job.experts, "experts where ep is above 1"),
        (job.experts % job.ep, "ep that divides the experts"),
        (job.sequence % job.cp, "cp that divides the sequence"),
        (job.sequence_spread > 0 and (job.cp > 1 or job.ep > 1), "cp and ep of 1 where samples have different lengths"),
        (
            job.chunks > 1 and (job.pp < 2 or job.micro_batches % job.pp),
            "chunks on several pp_stages, and pp that divides the micro-batches",
        ),
        (job.sharded and (job.pp > 1 or job.cp > 1 or job.experts), "pp, cp and experts unused where sharding is full"),
        (job.units % job.shards, "shard_ranks that divides dp"),
        (job.shard_ranks and not job.sharded, "shard_ranks only where sharding is full"),
        (job.embeddings == "tied" and job.sharded, "untied embeddings where sharding is full"),
        (
            job.algorithm == "tree" and (job.optimizer == "distributed" or job.sharded),
            "optimizer = replicated and no sharding for trees",
        ),
        (
            job.overlap_param_gather == "yes" and job.optimizer != "distributed",
            "a distributed optimizer to overlap its gather",
        ),
    )
    return next((wanted for broken, wanted in rules if broken), "")
