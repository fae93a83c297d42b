-- One row per window: how many records were read, accepted and refused, and how long each stage took.
-- Grain: window_start_ns.  From: the landing and the stages, as they run.
CREATE TABLE IF NOT EXISTS windows (
    window_start_ns BIGINT NOT NULL,   -- the window the row belongs to
    window_end_ns BIGINT NOT NULL,     -- the window's end, exclusive
    status VARCHAR NOT NULL,           -- landed, running, done, or stopped (a critical expectation failed)
    reason VARCHAR,                    -- why the window was stopped, or what was unusual
    rows_read BIGINT NOT NULL,         -- records read for this window: landed and quarantined
    rows_landed BIGINT NOT NULL,       -- records accepted to flows
    rows_quarantined BIGINT NOT NULL,  -- records in flows_quarantine, duplicates among them
    rows_duplicate BIGINT NOT NULL,    -- how many of the quarantined were exact duplicates
    stage_ns VARCHAR NOT NULL,         -- run time of each stage, as a JSON object of nanoseconds
    software_version VARCHAR NOT NULL, -- llmprism version that wrote the row
    flows_digest VARCHAR,              -- digest of the landed flows, empty for none; NULL if landed by an earlier llmprism
    expired VARCHAR[]                  -- tables whose rows were kept long enough and deleted
);
