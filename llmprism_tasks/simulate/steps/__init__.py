"""The steps of a job: its ranks' operations timed, with jitter and under faults."""
