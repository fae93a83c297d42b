-- One row: the warehouse's schema version, so that a later llmprism can migrate it and an earlier one can refuse it.
-- Grain: the warehouse.  From: sql/migrations, sql/views.
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL,  -- number of the last migration that was run
    views VARCHAR NOT NULL     -- digest of the views' texts; views are created again when it differs
);
