"""An invented training platform: its flows, its topology, and the truth about it.

Event-level simulation of Megatron-style jobs on a leaf-spine fabric; `scenario` tells what can be set. Modelled: ranks
in Megatron's order; 1F1B pipelines with rendezvous sends of the activations over two queue pairs; gradient buckets of
whole tensors, reduced during the last backward pass or after it; reduce-scatter and all-gather of a distributed
optimizer, or all-reduce; rings of two channels that a slow hop paces, with ranks that come early pushing 4 MiB and then
stalling; scalars for loss and gradient norm; ECMP by hash; 58 bytes of headers per 4 KiB packet; a collector that ends
a record after an idle gap; jitter of 1 % per operation and 0.4 % per GPU; slow GPUs and degraded switches.

Simplified: the queue pairs of one operation share links equally and tenants don't meet; a degraded switch forwards what
crosses it at a fraction of its healthy rate; a step feels the faults that are there when it begins; all jobs clip
gradients, so no rank updates its parameters before all have been heard of; TP ranks run in lock-step and inside hosts.
Not modelled: packets and congestion, trees, interleaved pipelines, tied embeddings, EP, CP, FSDP, PXN, storage traffic.
"""

from llmprism_tasks.simulate.scenario import Scenario, build_scenario, load_scenario
from llmprism_tasks.simulate.writing import Simulation, simulate, simulate_minute, write_minute, write_scenario

__all__ = [
    "Scenario",
    "Simulation",
    "build_scenario",
    "load_scenario",
    "simulate",
    "simulate_minute",
    "write_minute",
    "write_scenario",
]
