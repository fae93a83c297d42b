"""Tables of the data contract: their columns, types, keys and meanings; those that keep books are beside it."""

from __future__ import annotations

from llmprism_tasks.contract.bookkeeping_tables import MESSAGE_TABLES, WINDOW_TABLES
from llmprism_tasks.contract.columns import JOB, STEP, WINDOW, Column, Table

FLOW_COLUMNS = (
    Column("flow_start_ns", "BIGINT", "first packet"),
    Column("flow_end_ns", "BIGINT", "last packet, never before the first"),
    Column("src_addr", "VARCHAR", "sending NIC"),
    Column("dst_addr", "VARCHAR", "receiving NIC"),
    Column("src_port", "INTEGER", "sending port", optional=True),
    Column("dst_port", "INTEGER", "receiving port", optional=True),
    Column("protocol", "INTEGER", "17 for RoCEv2, 6 for TCP", optional=True),
    Column("bytes", "BIGINT", "bytes of the record, above 0"),
    Column("packets", "BIGINT", "packets of the record", optional=True),
    Column("switch_path", "VARCHAR[]", "switches crossed, in order; NULL when not known", optional=True),
)

TOPOLOGY_COLUMNS = (
    Column("addr", "VARCHAR", "address of a GPU's NIC"),
    Column("host", "VARCHAR", "the NIC's host"),
    Column("gpu", "INTEGER", "index of the GPU in its host", optional=True),
    Column("leaf_switch", "VARCHAR", "the switch that the NIC is cabled to", optional=True),
    Column("pod", "VARCHAR", "the part of the fabric that the leaf switch is in", optional=True),
)

TABLES: tuple[Table, ...] = (
    Table(
        "flows",
        "the valid flow records, as landed",
        ("window_start_ns",),
        (WINDOW, *FLOW_COLUMNS),
    ),
    Table(
        "flows_quarantine",
        "every refused record, as it was read",
        ("window_start_ns", "source_file", "source_position"),
        (
            WINDOW,
            Column("reason", "VARCHAR", "why it was refused, one of the reasons in sources/flows.py"),
            Column("source_file", "VARCHAR", "the file that the record is from"),
            Column("source_position", "BIGINT", "the record's number in that file, from 1"),
            Column("record", "VARCHAR", "the record as it was read, as JSON text"),
        ),
    ),
    *WINDOW_TABLES,
    Table(
        "jobs",
        "the jobs seen in a window",
        ("window_start_ns", "job_id"),
        (
            WINDOW,
            JOB,
            Column("kind", "VARCHAR", "training or other"),
            Column("endpoints", "INTEGER", "GPU NICs in the job"),
            Column("hosts", "INTEGER", "hosts in the job"),
            Column("tp", "INTEGER", "tensor-parallel degree", optional=True),
            Column("pp", "INTEGER", "pipeline-parallel degree", optional=True),
            Column("dp", "INTEGER", "data-parallel degree", optional=True),
            Column("confidence", "DOUBLE", "ratio, 0 to 1: confidence that the row is right"),
            Column("cp", "INTEGER", "context-parallel degree", optional=True),
            Column(
                "ep", "INTEGER", "expert-parallel degree; experts live within the ranks of dp and cp", optional=True
            ),
            Column("sharded", "BOOLEAN", "whether parameters are fully sharded (FSDP, ZeRO-3)", optional=True),
            Column(
                "micro_batches",
                "INTEGER",
                "pipeline messages of a pair per step and direction; NULL without a pipeline",
                optional=True,
            ),
            Column(
                "gradient_bytes",
                "BIGINT",
                "gradient bytes that a rank synchronises per step; NULL unless by all-reduce",
                optional=True,
            ),
            Column("activation_bytes", "BIGINT", "bytes of one pipeline message", optional=True),
            Column("period_ns", "BIGINT", "length of the job's typical step", optional=True),
            Column(
                "jitter_ratio",
                "DOUBLE",
                "ratio: robust deviation of the job's step durations over their median",
                optional=True,
            ),
            Column(
                "explained_flows",
                "DOUBLE",
                "ratio: share of the job's bulk flows that are in pairs of a known kind",
                optional=True,
            ),
            Column(
                "explained_bytes",
                "DOUBLE",
                "ratio: share of the bulk flows' bytes that are in pairs of a known kind",
                optional=True,
            ),
            Column("explained_nics", "DOUBLE", "ratio: share of the job's NICs that have a step", optional=True),
            Column(
                "recognition_confidence",
                "DOUBLE",
                "ratio, 0 to 1: confidence that members and kind are right, whatever the layout",
                optional=True,
            ),
            Column(
                "unlisted",
                "VARCHAR[]",
                "addresses that train with the job, though the topology lacks them; NULL for none",
                optional=True,
            ),
        ),
    ),
    Table(
        "job_members",
        "the NICs of each job",
        ("window_start_ns", "job_id", "addr"),
        (
            WINDOW,
            JOB,
            Column("addr", "VARCHAR", "the NIC"),
            Column("host", "VARCHAR", "its host"),
            Column(
                "pp_stage",
                "INTEGER",
                "pipeline stage, from 0, which begins a step; 0 for all members without a pipeline",
                optional=True,
            ),
            Column(
                "dp_group",
                "INTEGER",
                "number of the data-parallel group, whose members synchronise gradients",
                optional=True,
            ),
        ),
    ),
    Table(
        "pair_steps",
        "a pair's flows divided into steps, before its kind is known",
        ("window_start_ns", "job_id", "src_addr", "dst_addr", "step_index"),
        (
            WINDOW,
            JOB,
            Column("src_addr", "VARCHAR", "sending NIC"),
            Column("dst_addr", "VARCHAR", "receiving NIC"),
            STEP,
            Column("start_ns", "BIGINT", "first flow's start"),
            Column("end_ns", "BIGINT", "last flow's end"),
            Column("flows", "BIGINT", "flow records"),
            Column("bytes", "BIGINT", "their bytes"),
            Column("distinct_sizes", "INTEGER", "different record sizes among them"),
        ),
    ),
    Table(
        "pairs",
        "the kind of traffic of each pair of NICs",
        ("window_start_ns", "job_id", "src_addr", "dst_addr"),
        (
            WINDOW,
            JOB,
            Column("src_addr", "VARCHAR", "sending NIC"),
            Column("dst_addr", "VARCHAR", "receiving NIC"),
            Column("kind", "VARCHAR", "dp, pp, ep, cp or other"),
            Column("flows", "BIGINT", "flow records in the window"),
            Column("bytes", "BIGINT", "their bytes"),
            Column("distinct_sizes", "INTEGER", "most frequent number of different record sizes in a step"),
            Column("confidence", "DOUBLE", "ratio, 0 to 1: confidence that the kind is right"),
        ),
    ),
    Table(
        "steps",
        "training steps of each NIC, and of the job (addr NULL), in the window in which they end, or in the next, if "
        "it was not yet sure that they had ended",
        ("window_start_ns", "job_id", "addr", "step_index"),
        (
            WINDOW,
            JOB,
            Column("addr", "VARCHAR", "the NIC; NULL for the job's own step", optional=True),
            STEP,
            Column("start_ns", "BIGINT", "where the previous step ended; of the first step seen, its first flow"),
            Column("end_ns", "BIGINT", "end of the step's gradient synchronisation"),
        ),
    ),
    Table(
        "timeline",
        "what each NIC did, and when",
        ("window_start_ns", "job_id", "addr", "start_ns", "phase", "peer"),
        (
            WINDOW,
            JOB,
            Column("addr", "VARCHAR", "the NIC"),
            Column("start_ns", "BIGINT", "start of the phase"),
            Column("end_ns", "BIGINT", "end of the phase, exclusive"),
            Column("phase", "VARCHAR", "compute, pp_send, pp_recv, dp_sync, idle, other"),
            Column("peer", "VARCHAR", "the other NIC; NULL for compute and idle", optional=True),
            Column("bytes", "BIGINT", "bytes moved; 0 for compute and idle"),
            STEP,
        ),
    ),
    Table(
        "step_breakdown",
        "how the time of each NIC's step is divided; the parts add up to the step",
        ("window_start_ns", "job_id", "addr", "step_index"),
        (
            WINDOW,
            JOB,
            Column("addr", "VARCHAR", "the NIC"),
            STEP,
            Column("step_ns", "BIGINT", "the step's length: the sum of the parts"),
            Column("compute_ns", "BIGINT", "computing of the GPU or its host, without waiting for another NIC"),
            Column("communication_ns", "BIGINT", "messages in flight, once both ends or all members had started"),
            Column("bubble_ns", "BIGINT", "waiting that all members of the pp_stage have in that place of the step"),
            Column("waiting_ns", "BIGINT", "waiting beyond bubble_ns, and for the last member of the gradient group"),
            Column(
                "waiting_for", "VARCHAR", "the NIC that caused most of waiting_ns; NULL if not known", optional=True
            ),
            Column("unexplained_ns", "BIGINT", "time that no rule explains"),
        ),
    ),
    Table(
        "diagnoses",
        "what is wrong, and where",
        ("window_start_ns", "job_id", "kind", "subject_type", "subject"),
        (
            WINDOW,
            JOB,
            Column("kind", "VARCHAR", "kind of fault, such as slow_compute; docs/diagnosis.md lists them"),
            Column("subject_type", "VARCHAR", "job, host, addr, switch, link, dp_group or pp_stage"),
            Column("subject", "VARCHAR", "name of the job, host, NIC, switch, link, group or stage"),
            Column("start_ns", "BIGINT", "start of the first step or flow that shows the fault"),
            Column("end_ns", "BIGINT", "end of the last step or flow that shows the fault"),
            Column("score", "DOUBLE", "robust deviations from the peers or the past; 0 is normal"),
            Column("severity", "DOUBLE", "ratio of time lost: 0.3 means steps take 1.3 times as long"),
            Column("explanation", "VARCHAR", "one sentence with the measured numbers"),
            Column("confidence", "DOUBLE", "ratio, 0 to 1: share of the loss that the subject explains", optional=True),
            Column(
                "rank", "INTEGER", "rank among the job's suspects, 1 is the worst; NULL for an effect", optional=True
            ),
            Column("lost_gpu_s", "DOUBLE", "GPU-seconds the job lost in the interval", optional=True),
            Column("recoverable_gpu_s", "DOUBLE", "GPU-seconds a repair would give back, by replay", optional=True),
            Column("peers", "VARCHAR[]", "subjects that it is compared with; NULL for its own past", optional=True),
            Column("evidence_sql", "VARCHAR", "a query that returns the flows behind the diagnosis", optional=True),
            Column(
                "candidates",
                "VARCHAR[]",
                "devices or readings of which one is right, the likeliest first",
                optional=True,
            ),
            Column("odds", "DOUBLE[]", "probabilities of the candidates; they add up to 1", optional=True),
            Column("steps", "INTEGER", "number of single slow steps; NULL for a fault that lasts", optional=True),
        ),
    ),
    *MESSAGE_TABLES,
)

HISTORY = {
    "windows": ("stage_ns",),
    "minutes": (
        *("expected_ns", "expected_by", "begun_ns", "runs", "last_run_ns"),
        *("due_since_ns", "tries", "tried_ns"),
    ),
    "notifications": ("told_ns",),
}
"""Columns that tell when and how often windows were run. All others are the same in whatever order and however often
windows are run, also if runs were killed in between."""


def table_named(name: str) -> Table:
    """Return the table of that name; KeyError if the contract has none."""
    return {table.name: table for table in TABLES}[name]
