-- One row per expectation and window: whether it held, and what was observed.
-- Grain: window_start_ns, expectation, column.  From: expectations/ and the rows they check.
CREATE TABLE IF NOT EXISTS validation_results (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    expectation VARCHAR NOT NULL,     -- the table and the expectation's name in its suite, joined by a dot
    "column" VARCHAR NOT NULL,        -- the column that it checks; empty if it checks whole rows or the table
    severity VARCHAR NOT NULL,        -- critical: stops the window or sets jobs aside; warning: is only recorded
    success BOOLEAN NOT NULL,         -- whether the expectation held
    observed VARCHAR,                 -- the observed value, as JSON text
    unexpected_count BIGINT           -- rows that break the expectation; NULL if it is not about rows
);
