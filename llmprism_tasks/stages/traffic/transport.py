"""Which transport carries a NIC's training: where NICs talk RDMA, what they say by TCP is something else.

NCCL opens RDMA connections between all NICs of a job, or sockets between all (NCCL user guide, environment variables:
NCCL_IB_DISABLE). Beside RDMA, logs, metrics, rendezvous and copies of data go by TCP, at any moment and of any size.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Flags

UDP = 17
"""IANA's number of the protocol that RoCEv2 goes by."""


def beside_rdma(flows: pl.DataFrame, protocol: pl.Series, *, control_bytes: int) -> Flags:
    """Return which flows are of another protocol than RoCEv2, between two NICs that both move data by RoCEv2.

    Parameters
    ----------
    flows : `src_addr`, `dst_addr` as codes, and `bytes`
    protocol : of each flow, as IANA numbers it; null if it is not known, which tells nothing
    control_bytes : larger flows carry data
    """
    other: Flags = (protocol != UDP).fill_null(value=False).to_numpy()
    if not other.any():
        return other
    ends = [flows[end].to_physical().to_numpy() for end in ("src_addr", "dst_addr")]
    rdma = (protocol == UDP).fill_null(value=False).to_numpy() & (flows["bytes"].to_numpy() > control_bytes)
    talks_rdma = np.zeros(max(end.max(initial=0) for end in ends) + 1, bool)
    for end in ends:
        talks_rdma[end[rdma]] = True
    between: Flags = talks_rdma[ends[0]] & talks_rdma[ends[1]]
    return other & between
