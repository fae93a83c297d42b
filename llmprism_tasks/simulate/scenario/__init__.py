"""What a scenario file may say: the fabric, its jobs, their faults, other traffic and the collector."""
