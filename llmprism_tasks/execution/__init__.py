"""How the stages are run: windows, partitions, processes, and what one task hands over to the next.

Start reading at `analyze` (the command: all windows of some files, in one process and its worker processes) or at
`stage_task` (Airflow: one stage of one window, in a process of its own). Both do the same four things:

1. `partitions/partition` divides the platform into groups of hosts that exchange no data with each other;
2. `partitions/partitioned` takes them through stages, on all processors (`pool`), and merges what was made of them;
3. `partitions/stage_runner` calls the stage functions for one partition, in the order of the plan;
4. `writer` writes the resulting tables to the warehouse, in a background thread.

`window` holds the other steps of a window: landing, validation, finishing. `partitions/arrow_exchange` keeps frames in
files that processes share, `partitions/handover` keeps them from one Airflow task to the next, and `notify` sends
messages.
"""
