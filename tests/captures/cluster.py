"""An emulated cluster on one Linux machine: a network namespace per NIC, veth links, bridges as switches.

Eight NICs on four hosts, two leaf switches and a spine, as in the captures of `tests/data/real`. Needs root, `ip`,
`tc`, `bridge` and `ethtool`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

FABRIC = "llmprism-fabric"
"""The namespace that holds the switches: nothing of the machine's own traffic comes near them."""

LEAVES = ("leaf0", "leaf1")
SPINE = "spine0"
SWITCHES = (*LEAVES, SPINE)

NVLINK = "nvlink0"
"""The interface between the NICs of one host, for what never leaves it; no switch sees it."""

NIC_MBIT = 400
STORAGE_MBIT = 300
"""Rates in each direction. Two cores forward what eight NICs of 400 Mbit/s send without a drop; storage is slower."""

MTU_BYTES = 9000
BURST_BYTES = 65_536
"""Depth of the token bucket: a few jumbo frames, or the bucket itself would pace the traffic."""

QUEUE_BYTES = 4_000_000
"""Room behind the token bucket: with less, several senders to one NIC lose packets all the time."""


@dataclass(frozen=True)
class Node:
    """Something with an address and one link to a switch; `host` is empty outside the topology."""

    addr: str
    switch: str
    host: str = ""
    gpu: int = 0
    mbit: int = NIC_MBIT

    @property
    def namespace(self) -> str:
        return f"llmprism-{self.addr}"

    @property
    def port(self) -> str:
        """The switch's end of the link; a Linux interface name has at most 15 characters."""
        return "p" + self.addr.removeprefix("10.0.").replace(".", "-")

    @property
    def inner(self) -> str:
        """The node's address on its host's own link, if it is in the topology."""
        return self.addr.replace("10.0.", "10.9.", 1)

    @property
    def mac(self) -> str:
        return "02:00:" + ":".join(f"{int(part):02x}" for part in self.addr.split("."))


NICS = tuple(
    Node(f"10.0.{host}.{1 + gpu}", LEAVES[(host - 1) // 2], f"host-{host}", gpu)
    for host in range(1, 5)
    for gpu in range(2)
)
STORAGE = Node("10.0.100.1", SPINE, mbit=STORAGE_MBIT)
OUTSIDER = Node("10.0.100.2", LEAVES[0])
NODES = {node.addr: node for node in (*NICS, STORAGE, OUTSIDER)}


def inside(node: Node, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one in the node's namespace."""
    return ["ip", "netns", "exec", node.namespace, *command]


def build() -> None:
    """Create the switches, the nodes and the links between them, over what an earlier run left behind."""
    destroy()
    _run(f"ip netns add {FABRIC}")
    for switch in SWITCHES:
        _fabric(f"ip link add {switch} mtu {MTU_BYTES} type bridge ageing_time 0")
        _fabric(f"ip link set {switch} up")
    for leaf in LEAVES:
        _fabric(f"ip link add {leaf}-up mtu {MTU_BYTES} type veth peer name {leaf}-down mtu {MTU_BYTES}")
        _plug(f"{leaf}-up", leaf)
        _plug(f"{leaf}-down", SPINE)
    for node in NODES.values():
        _attach(node)
    for node in NODES.values():
        _route_statically(node)
    for one, other in zip(NICS[::2], NICS[1::2], strict=True):
        _join(one, other)


def destroy() -> None:
    """Remove every namespace of the cluster; what is in it goes along."""
    for namespace in (FABRIC, *(node.namespace for node in NODES.values())):
        subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def limit(addr: str, mbit: float) -> None:
    """Give a node's link another rate, in both directions, while traffic goes on; one near 0 is a link that is down."""
    node = NODES[addr]
    _node(node, f"tc qdisc replace dev eth0 {_bucket(mbit)}")
    _fabric(f"tc qdisc replace dev {node.port} {_bucket(mbit)}")


def uplink(addr: str) -> str:
    """Return the link between a node's switch and the spine."""
    return f"{NODES[addr].switch} - {SPINE}"


def limit_uplink(addr: str, mbit: float | None) -> None:
    """Give the link between a node's leaf and the spine a rate in both directions, or none, while traffic goes on."""
    leaf = NODES[addr].switch
    for port in (f"{leaf}-up", f"{leaf}-down"):
        if mbit is None:
            _fabric(f"tc qdisc del dev {port} root")
        else:
            _fabric(f"tc qdisc replace dev {port} {_bucket(mbit)}")


def _bucket(mbit: float) -> str:
    return f"root tbf rate {1000 * mbit:.0f}kbit burst {BURST_BYTES} limit {QUEUE_BYTES}"


def _attach(node: Node) -> None:
    _run(f"ip netns add {node.namespace}")
    _fabric(f"ip link add {node.port} mtu {MTU_BYTES} type veth peer name eth0 netns {node.namespace}")
    _node(node, f"ip link set eth0 address {node.mac} mtu {MTU_BYTES}")
    # A packet on the wire has to be a packet in the capture, not a 64 KB segment that a real NIC would cut.
    _node(node, "ethtool -K eth0 tso off gso off gro off tx off")
    _node(node, f"ip addr add {node.addr}/16 dev eth0")
    _node(node, "ip link set lo up")
    _node(node, "ip link set eth0 up")
    _fabric(f"ethtool -K {node.port} tso off gso off gro off tx off")
    _plug(node.port, node.switch)
    limit(node.addr, node.mbit)


def _join(one: Node, other: Node) -> None:
    """Link two NICs of a host directly, as NVLink does; no rate is set."""
    _run(f"ip link add {NVLINK} netns {one.namespace} type veth peer name {NVLINK} netns {other.namespace}")
    for node in (one, other):
        _node(node, f"ip addr add {node.inner}/24 dev {NVLINK}")
        _node(node, f"ip link set {NVLINK} up")


def _route_statically(node: Node) -> None:
    """Tell all switches and nodes where a node is: a switch that had to learn it would flood packets off their path."""
    for switch in SWITCHES:
        if switch == node.switch:
            port = node.port
        elif switch == SPINE:
            port = f"{node.switch}-down"
        else:
            port = f"{switch}-up"
        _fabric(f"bridge fdb replace {node.mac} dev {port} master static")
    for other in NODES.values():
        if other != node:
            _node(other, f"ip neigh replace {node.addr} lladdr {node.mac} dev eth0 nud permanent")


def _plug(port: str, switch: str) -> None:
    _fabric(f"ip link set {port} master {switch}")
    _fabric(f"ip link set {port} up")


def _node(node: Node, command: str) -> None:
    _run(f"ip netns exec {node.namespace} {command}")


def _fabric(command: str) -> None:
    _run(f"ip netns exec {FABRIC} {command}")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)
