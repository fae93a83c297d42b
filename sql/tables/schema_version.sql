-- One row: which schema this warehouse has, so that a later llmprism can bring it forward and an earlier one can refuse it.
-- Grain: the warehouse.  From: sql/migrations, sql/views.
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL,  -- number of the last migration that was run
    views VARCHAR NOT NULL     -- digest of the views' text, which are made anew when it differs
);
