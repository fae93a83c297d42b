"""Tables of the data contract: their columns, types, keys and meanings, with the IPFIX names of flow fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column: its SQL type, its meaning, and whether it may be NULL (`optional`)."""

    name: str
    type: str
    meaning: str
    optional: bool = False
    ipfix: str | None = None


@dataclass(frozen=True)
class Table:
    """A table. Its key is unique, and rows are stored and returned in the order of the key."""

    name: str
    meaning: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns' names, in the table's order."""
        return tuple(column.name for column in self.columns)


WINDOW = Column("window_start_ns", "BIGINT", "the window the row belongs to")
JOB = Column("job_id", "VARCHAR", "the job, the same from window to window while half of its members stay")
STEP = Column("step_index", "INTEGER", "the job's step, counted from 0 in each window; the same for all members")

FLOW_COLUMNS = (
    Column("flow_start_ns", "BIGINT", "first packet", ipfix="flowStartNanoseconds"),
    Column("flow_end_ns", "BIGINT", "last packet, never before the first", ipfix="flowEndNanoseconds"),
    Column("src_addr", "VARCHAR", "sending NIC", ipfix="sourceIPv4Address / sourceIPv6Address"),
    Column("dst_addr", "VARCHAR", "receiving NIC", ipfix="destinationIPv4Address / destinationIPv6Address"),
    Column("src_port", "INTEGER", "sending port", optional=True, ipfix="sourceTransportPort"),
    Column("dst_port", "INTEGER", "receiving port", optional=True, ipfix="destinationTransportPort"),
    Column("protocol", "INTEGER", "17 for RoCEv2, 6 for TCP", optional=True, ipfix="protocolIdentifier"),
    Column("bytes", "BIGINT", "bytes of the record, above 0", ipfix="octetDeltaCount"),
    Column("packets", "BIGINT", "packets of the record", optional=True, ipfix="packetDeltaCount"),
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
    Table(
        "flow_files",
        "the files of flow records that were read",
        ("source_file",),
        (
            Column(
                "window_start_ns", "BIGINT", "the window of its first record; that of its name, or 0, if it has none"
            ),
            Column("source_file", "VARCHAR", "the file"),
            Column("size_bytes", "BIGINT", "its size"),
            Column(
                "modified_ns", "BIGINT", "when it was last changed, by the clock of its file system; -1 once it is gone"
            ),
            Column("digest", "VARCHAR", "digest of its content"),
            Column("records", "BIGINT", "records in it; 0 for a copy"),
            Column(
                "copy_of",
                "VARCHAR",
                "the file with the same content that is read in its place; NULL if it is no copy",
                optional=True,
            ),
        ),
    ),
    Table(
        "flow_file_windows",
        "how many records of each window a file holds",
        ("window_start_ns", "source_file"),
        (
            WINDOW,
            Column("source_file", "VARCHAR", "the file"),
            Column("records", "BIGINT", "records of the window in it, accepted and refused"),
            Column("digest", "VARCHAR", "digest of the file's content in which they were found"),
            Column("landed", "BOOLEAN", "whether the window has been landed with them"),
        ),
    ),
    Table(
        "windows",
        "how each window was processed",
        ("window_start_ns",),
        (
            WINDOW,
            Column("window_end_ns", "BIGINT", "the window's end, exclusive"),
            Column("status", "VARCHAR", "landed, running, done, or stopped (a critical expectation failed)"),
            Column("reason", "VARCHAR", "why the window was stopped, or what was unusual", optional=True),
            Column("rows_read", "BIGINT", "records read for this window: landed and quarantined"),
            Column("rows_landed", "BIGINT", "records accepted to flows"),
            Column("rows_quarantined", "BIGINT", "records in flows_quarantine, duplicates among them"),
            Column("rows_duplicate", "BIGINT", "how many of the quarantined were exact duplicates"),
            Column("stage_ns", "VARCHAR", "run time of each stage, as a JSON object of nanoseconds"),
            Column("software_version", "VARCHAR", "llmprism version that wrote the row"),
            Column(
                "flows_digest",
                "VARCHAR",
                "digest of the landed flows, empty for none; NULL if landed by an earlier llmprism",
                optional=True,
            ),
            Column("expired", "VARCHAR[]", "tables whose rows were kept long enough and deleted", optional=True),
        ),
    ),
    Table(
        "minutes",
        "every window that was ever expected, and what became of its runs",
        ("window_start_ns",),
        (
            WINDOW,
            Column("expected_ns", "BIGINT", "when it became expected, by the clock"),
            Column("expected_by", "VARCHAR", "schedule (each minute is), or run (somebody ran it)"),
            Column("begun_ns", "BIGINT", "when its last run began to land, by the clock; NULL before", optional=True),
            Column("seen", "VARCHAR[]", "digests of the flows that this run saw, oldest window first", optional=True),
            Column("runs", "INTEGER", "runs that were finished"),
            Column("last_run_ns", "BIGINT", "when the last of them was finished, by the clock", optional=True),
            Column("due_since_ns", "BIGINT", "when it was marked as due, by the clock", optional=True),
            Column("due_reason", "VARCHAR", "the mark, such as late_records; a run takes it away", optional=True),
            Column("tries", "INTEGER", "times it was taken up as due since its last finished run or mark"),
            Column("tried_ns", "BIGINT", "when it was last taken up as due, by the clock", optional=True),
        ),
    ),
    Table(
        "validation_results",
        "what each expectation observed",
        ("window_start_ns", "expectation", "column"),
        (
            WINDOW,
            Column("expectation", "VARCHAR", "the table and the expectation's name in its suite, joined by a dot"),
            Column("column", "VARCHAR", "the column that it checks; empty if it checks whole rows or the table"),
            Column("severity", "VARCHAR", "critical: stops the window or sets jobs aside; warning: is only recorded"),
            Column("success", "BOOLEAN", "whether the expectation held"),
            Column("observed", "VARCHAR", "the observed value, as JSON text", optional=True),
            Column(
                "unexpected_count",
                "BIGINT",
                "rows that break the expectation; NULL if it is not about rows",
                optional=True,
            ),
        ),
    ),
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
            Column("kind", "VARCHAR", "dp, pp, ep, cp, tp or other"),
            Column("flows", "BIGINT", "flow records in the window"),
            Column("bytes", "BIGINT", "their bytes"),
            Column("distinct_sizes", "INTEGER", "most frequent number of different record sizes in a step"),
            Column("confidence", "DOUBLE", "ratio, 0 to 1: confidence that the kind is right"),
        ),
    ),
    Table(
        "steps",
        "training steps of each NIC, and of the job (addr NULL), in the window in which they end",
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
    Table(
        "notifications",
        "messages about incidents that opened or closed; they stay when the window is run again",
        ("window_start_ns", "incident_id", "change", "told_ns"),
        (
            WINDOW,
            Column("incident_id", "VARCHAR", "the incident's id at that time"),
            Column("change", "VARCHAR", "opened or closed"),
            Column("told_ns", "BIGINT", "time of the claim; later messages have later times"),
            Column("family", "VARCHAR", "the incident's family of kinds"),
            Column("place", "VARCHAR", "the incident's place"),
            Column("tenant", "VARCHAR", "the incident's job; empty for switches and links"),
            Column("seen_window_start_ns", "BIGINT", "last window that showed the incident at that time"),
            Column("outcome", "VARCHAR", "claimed (being sent), sent, refused (will be tried again) or unknown"),
            Column("detail", "VARCHAR", "why the message was not sent", optional=True),
            Column("message", "VARCHAR", "the message, as JSON text"),
        ),
    ),
    Table(
        "mutes",
        "who muted an incident, until when, and why; they stay when the window is run again",
        ("window_start_ns", "incident_id", "muted_ns"),
        (
            Column("window_start_ns", "BIGINT", "the last window that showed the incident when it was muted"),
            Column("incident_id", "VARCHAR", "the incident's id at that time"),
            Column("muted_ns", "BIGINT", "time of the mute"),
            Column("until_ns", "BIGINT", "until when no message is sent, exclusive"),
            Column("reason", "VARCHAR", "why, as the person who muted it wrote"),
            Column("muted_by", "VARCHAR", "who muted it; NULL if not known", optional=True),
            Column("family", "VARCHAR", "the incident's family of kinds"),
            Column("place", "VARCHAR", "the incident's place"),
            Column("tenant", "VARCHAR", "the incident's job; empty for switches and links"),
        ),
    ),
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
