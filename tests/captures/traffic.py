"""Traffic that is not training: `traffic.py sink | copy ADDR SECONDS MBIT LOG | chatter SEED SECONDS LOG ADDR ...`.

Runs in a node's namespace with nothing but the standard library. What was sent is logged as a line of JSON per peer.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path

SINK_PORT = 9100
GOSSIP_PORT = 7946
"""The port of Serf's and Consul's gossip, whose manner the chatter has: small datagrams to peers taken at random."""

CHUNK = bytes(65_536)
GOSSIP_BYTES = (40, 1400)
STATE_BYTES = 20_000
"""What now and then is exchanged over a connection instead."""

STATE_SHARE = 0.05
PAUSE_S = 0.3
"""Mean seconds between two messages of a node."""


def sink() -> None:
    """Take connections and swallow what comes; close when the other side has said all."""
    threading.Thread(target=_swallow_datagrams, daemon=True).start()
    with socket.create_server(("", SINK_PORT)) as server:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_swallow, args=(connection,), daemon=True).start()


def copy(addr: str, seconds: str, mbit: str, log: str) -> None:
    """Send zeros for some seconds, no faster than a rate."""
    start, sent = time.time_ns(), 0
    with socket.create_connection((addr, SINK_PORT)) as connection:
        while (passed := (time.time_ns() - start) / 1e9) < float(seconds):
            ahead = sent * 8 / (float(mbit) * 1e6) - passed
            if ahead > 0:
                time.sleep(ahead)
            connection.sendall(CHUNK)
            sent += len(CHUNK)
    _tell(log, [(addr, sent)], start)


def chatter(seed: str, seconds: str, log: str, *addrs: str) -> None:
    """Send small messages to peers taken at random, at random times."""
    own, start = random.Random(int(seed)), time.time_ns()
    sent: Counter[str] = Counter()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gossip:
        while (time.time_ns() - start) / 1e9 < float(seconds):
            time.sleep(own.expovariate(1 / PAUSE_S))
            addr = own.choice(addrs)
            if own.random() < STATE_SHARE:
                with socket.create_connection((addr, SINK_PORT)) as connection:
                    connection.sendall(bytes(STATE_BYTES))
                sent[addr] += STATE_BYTES
            else:
                size = own.randint(*GOSSIP_BYTES)
                gossip.sendto(bytes(size), (addr, GOSSIP_PORT))
                sent[addr] += size
    _tell(log, sorted(sent.items()), start)


def _swallow(connection: socket.socket) -> None:
    with connection:
        while connection.recv(1 << 20):
            pass


def _swallow_datagrams() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gossip:
        gossip.bind(("", GOSSIP_PORT))
        while True:
            gossip.recv(2048)


def _tell(log: str, sent: list[tuple[str, int]], start_ns: int) -> None:
    end_ns = time.time_ns()
    rows = [{"dst": addr, "start_ns": start_ns, "end_ns": end_ns, "bytes": size} for addr, size in sent]
    Path(log).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    {"sink": sink, "copy": copy, "chatter": chatter}[sys.argv[1]](*sys.argv[2:])
