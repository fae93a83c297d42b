"""An invented training platform: its flows, its topology, and the truth about it.

Event-level simulation of training jobs on a leaf-spine fabric; `scenario` tells what can be set. Modelled:
ranks in Megatron's order, tp-cp-dp-pp; 1F1B and interleaved pipelines with rendezvous sends of the activations;
gradient buckets of whole tensors, reduced during the last backward pass or after it, in fp32 or bf16; reduce-scatter
and all-gather of a distributed optimizer, the gather at once or during the next forward, or all-reduce; FSDP2 and
HSDP, layer by layer; context-parallel rings of keys and values; experts, with all-to-all of sizes that a router
decides, and gradients of their own groups; tied embeddings; samples of different lengths; NCCL rings and double
binary trees over several channels and queue pairs that a slow hop paces, with ranks that come early pushing 4 MiB and
then stalling; point-to-point traffic across rails, or relayed through the NIC of another GPU (PXN); scalars for loss
and gradient norm; receivers' clear-to-send messages; ECMP by hash; 58 bytes of headers per 4 KiB packet; jitter of 1
% per operation and 0.4 % per GPU, and on demand costs of packed sequences, pauses and drift; slow GPUs and
degraded switches.

Around the jobs: their starts (rendezvous over TCP, checkpoints loaded, weights broadcast along binary trees), stops,
crashes, hangs, returns on other hosts and growth; reads and checkpoints at storage outside the topology; tenants that
do inference or shuffle; chatter, heartbeats, copies of weights, acknowledgements; a collector with idle and active
timeouts that samples, loses, doubles, disorders and mistimes records and may not know their paths.

Simplified: the queue pairs of one use share links equally, and other uses and tenants don't meet; a degraded switch
forwards what crosses it at a fraction of its healthy rate; a step feels the faults that are there when it begins; all
jobs clip gradients, so no rank updates its parameters before all have been heard of; TP ranks run in lock-step and
inside hosts; a layer takes as long as the next one; NVLink carries what stays inside a host, unseen; other traffic
goes at fixed rates and slows nobody; all ranks write a checkpoint at once and wait for it; sampled messages are
merged as if none of their packets were far apart; a job that comes back has GPUs of other lasting speeds.
Not modelled: packets and congestion, adaptive routing, in-network reduction, bonded NICs.

Imports point one way: `arrays` < `scenario` < `network` < `workload` < `steps` < `traffic` < `collector` < `truth` <
`simulation`. `network` has what NCCL lays out, `workload` what a rank does in a step, `steps` times that, `traffic`
puts it on the clock beside all other traffic, and `collector` makes flow records of it.
"""

from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.scenario_file import build_scenario, load_scenario
from llmprism_tasks.simulate.simulation import Simulation, simulate, simulate_minute, write_minute, write_scenario

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
