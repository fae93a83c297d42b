"""Tables in which llmprism keeps what it did: which files and windows it read, what it checked, what it told whom."""

from __future__ import annotations

from llmprism_tasks.contract.columns import WINDOW, Column, Table

WINDOW_TABLES: tuple[Table, ...] = (
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
)

MESSAGE_TABLES: tuple[Table, ...] = (
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
