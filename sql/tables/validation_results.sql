-- One row per expectation of a window: whether it held and what was observed.
-- Grain: window_start_ns, expectation, column.  From: expectations/ and the rows they look at.
CREATE TABLE IF NOT EXISTS validation_results (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    expectation VARCHAR NOT NULL,     -- the table and the expectation's name in its suite, joined by a dot
    "column" VARCHAR NOT NULL,        -- the column it is about; empty when about whole rows or the table
    severity VARCHAR NOT NULL,        -- critical stops the window or sets jobs aside, warning is recorded
    success BOOLEAN NOT NULL,         -- whether it held
    observed VARCHAR,                 -- what was observed, as JSON text
    unexpected_count BIGINT           -- rows that break it; NULL when it is not about rows
);
