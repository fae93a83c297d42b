"""NICs, switches, a job's queue pairs as NCCL lays them out, and how long messages take on them."""
