"""The traffic index: a partition's flows sorted by pair of NICs, once for all phases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from llmprism_tasks.settings import TrafficSettings
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.transport import PORTS, acknowledgements, beside_rdma


@dataclass(frozen=True, eq=False)
class TrafficIndex:
    """Flows sorted by pair of NICs.

    Attributes
    ----------
    table : rows of the flows table, in any order; `protocol` may be missing
    flows : the same as `nic_pairs.numbered` returns them: addresses are codes, one for each NIC of the partition
    pairs : `pair`, `src_addr`, `dst_addr`, in this order
    settings : say what is bulk data
    """

    table: pl.DataFrame
    flows: pl.DataFrame
    pairs: pl.DataFrame
    settings: TrafficSettings

    @classmethod
    def of(cls, table: pl.DataFrame, settings: TrafficSettings) -> TrafficIndex:
        """Sort rows of the flows table, those of the look-back among them."""
        return cls(table, *nic_pairs.numbered(table), settings)

    @cached_property
    def ports(self) -> pl.DataFrame | None:
        """Return the ports of each row of the table; None if it lacks them."""
        return self.table.select(PORTS) if set(PORTS) <= set(self.table.columns) else None

    @cached_property
    def bulk(self) -> pl.DataFrame:
        """Return the flows that carry data, as `nic_pairs.bulk` does, but for acknowledgements and for what goes by TCP
        beside RDMA."""
        flows = self.flows.filter(~acknowledgements(self.flows, self.pairs, self.ports))
        protocol = self.table.get_column("protocol", default=None)
        if protocol is None:
            return nic_pairs.bulk(flows, self.settings)
        other = beside_rdma(flows, protocol.gather(flows["row"]), control_bytes=self.settings.control_bytes)
        return nic_pairs.bulk(flows.filter(~pl.Series(other)) if other.any() else flows, self.settings)

    def inside(self, job_members: pl.DataFrame) -> JobTraffic:
        """Return the flows between two members of one job.

        Parameters
        ----------
        job_members : `job_id`, `addr`
        """
        return JobTraffic(self, job_members.select("job_id", "addr"))


@dataclass(frozen=True, eq=False)
class JobTraffic:
    """Flows between two members of one job, in the order of the index.

    Attributes
    ----------
    index : all flows
    members : `job_id`, `addr`
    """

    index: TrafficIndex
    members: pl.DataFrame

    @cached_property
    def flows(self) -> pl.DataFrame:
        """Return all flows inside jobs, as `nic_pairs.inside_jobs` does."""
        return nic_pairs.inside_jobs(self.index.flows, self.members)

    @cached_property
    def bulk(self) -> pl.DataFrame:
        """Return those that carry data."""
        return nic_pairs.inside_jobs(self.index.bulk, self.members)
