"""The fabric of a scenario: hosts, leaf and spine switches, and the rates of their links."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number, text


@dataclass(frozen=True)
class Fabric:
    """A leaf-spine network; every host has one NIC per GPU, every leaf one link to every spine."""

    hosts: int = number(4, unit="hosts", low=1, high=65536, reason="machines on the fabric, used or not")
    gpus_per_host: int = number(8, unit="GPUs", low=1, high=64, reason="GPUs of a host, each with a NIC of its own")
    leaves: str = text(
        "rail",
        choices=("rail", "top_of_rack"),
        reason="rail: NICs of the same index share a leaf; top_of_rack: NICs of the same hosts do",
    )
    hosts_per_leaf: int = number(
        4, unit="hosts", low=1, high=1024, reason="hosts cabled to one leaf, or group of rails"
    )
    spines: int = number(4, unit="switches", low=1, high=1024, reason="spine switches, each linked to every leaf")
    link_gbps: float = number(400.0, unit="Gbit/s", low=1, high=10_000, reason="a NIC's rate, each way")
    uplink_gbps: float = number(
        1600.0, unit="Gbit/s", low=1, high=100_000, reason="rate of one leaf's link to one spine"
    )

    def leaf(self, host: int, gpu: int) -> str:
        """Return the leaf switch a NIC is cabled to."""
        pod = host // self.hosts_per_leaf
        return f"leaf-{pod * self.gpus_per_host + gpu if self.leaves == 'rail' else pod:03d}"

    def spine(self, index: int) -> str:
        """Return a spine switch's name."""
        return f"spine-{index:02d}"

    @property
    def switches(self) -> frozenset[str]:
        """The names of all leaf and spine switches."""
        leaves = {self.leaf(host, gpu) for host in range(self.hosts) for gpu in range(self.gpus_per_host)}
        return frozenset(leaves | {self.spine(index) for index in range(self.spines)})
