"""Tenants that do not train: when they send what to whom, minute by minute."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.surroundings import Tenant
from llmprism_tasks.simulate.traffic.bursts import TCP, bursts, endpoint, link_bps, port

MINUTE_S = 60.0
SPREAD = 0.8  # standard deviation of the logarithm of sizes; prompts differ that much
SHUFFLE_PORT = 7337  # Spark's external shuffle service
SHUFFLE_S = 2.0  # partitions of a shuffle are asked for over this time
LAYERS = 4  # keys and values are sent in this many pieces, as layers are done
PIECE_S = 0.02  # time between the pieces


def tenant_bursts(scenario: Scenario, tenant: Tenant, *, minute: int, seed: int) -> pl.DataFrame:
    """Return what a tenant sends from one minute on; `minute` counts from the epoch."""
    rng = np.random.default_rng([seed, minute, *tenant.name.encode()])
    times = np.sort(rng.uniform(0, MINUTE_S, rng.poisson(tenant.per_s * MINUTE_S)))
    kinds = {"disaggregated": _disaggregated, "experts": _experts, "shuffle": _shuffle}
    src, dst, after = kinds[tenant.kind](scenario, tenant, times, rng)
    start_ns = round(minute * MINUTE_S) * 10**9 + np.rint(after * 1e9).astype(np.int64)
    size = tenant.mb * 1e6 * np.exp(SPREAD * rng.standard_normal(len(src)))
    if tenant.kind == "shuffle":
        ports = port(src, dst, "shuffle") ^ (np.arange(len(src)) % 7)
        return bursts(
            *(src, dst, start_ns, size),
            bps=link_bps(scenario.fabric, 0.05),
            src_port=ports,
            dst_port=SHUFFLE_PORT,
            protocol=TCP,
        )
    return bursts(src, dst, start_ns, size, bps=link_bps(scenario.fabric, 0.5), src_port=port(src, dst, tenant.name))


def _nics(scenario: Scenario, tenant: Tenant) -> Indices:
    """Return a tenant's NICs, shape (hosts, GPUs)."""
    return np.array([[endpoint(scenario.fabric, host, gpu) for gpu in tenant.gpus] for host in tenant.hosts])


def _disaggregated(
    scenario: Scenario, tenant: Tenant, times: Reals, rng: np.random.Generator
) -> tuple[Indices, Indices, Reals]:
    """Send each request's keys and values from a host that prefilled it to one that decodes, every GPU its share."""
    nics = _nics(scenario, tenant)
    half = max(1, len(nics) // 2)
    prefill, decode = rng.integers(0, half, len(times)), rng.integers(half, len(nics), len(times))
    pieces = times[:, None, None] + PIECE_S * np.arange(LAYERS)[None, :, None]
    shape = (len(times), LAYERS, nics.shape[1])
    src, dst = (np.broadcast_to(nics[hosts][:, None, :], shape).ravel() for hosts in (prefill, decode))
    return src, dst, np.broadcast_to(pieces, shape).ravel()


def _experts(
    scenario: Scenario, tenant: Tenant, times: Reals, rng: np.random.Generator
) -> tuple[Indices, Indices, Reals]:
    """Send tokens from every NIC to all others of its rail, at each iteration of the server."""
    nics = _nics(scenario, tenant)
    hosts = len(nics)
    here, there = (index.ravel() for index in np.mgrid[0:hosts, 0:hosts])
    apart = here != there
    shape = (len(times), int(apart.sum()), nics.shape[1])
    src, dst = (np.broadcast_to(nics[index[apart]], shape).ravel() for index in (here, there))
    late = rng.exponential(1e-4, shape)
    return src, dst, (times[:, None, None] + late).ravel()


def _shuffle(
    scenario: Scenario, tenant: Tenant, times: Reals, rng: np.random.Generator
) -> tuple[Indices, Indices, Reals]:
    """Send partitions from every host to every other, over the first NIC of each."""
    nics = _nics(scenario, tenant)[:, 0]
    here, there = (index.ravel() for index in np.mgrid[0 : len(nics), 0 : len(nics)])
    apart = here != there
    shape = (len(times), int(apart.sum()))
    src, dst = (np.broadcast_to(nics[index[apart]], shape).ravel() for index in (here, there))
    return src, dst, (times[:, None] + rng.uniform(0, SHUFFLE_S, shape)).ravel()
