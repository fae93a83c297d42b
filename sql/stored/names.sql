-- One row per text that rows of other tables name by its number: addresses.
-- Grain: number; and value, which no other row has.  From: flows.
-- Row 0 is touched by whoever adds rows: of two that do so at once, one has to start over.
CREATE TABLE IF NOT EXISTS stored.names (
    number INTEGER NOT NULL,
    value VARCHAR NOT NULL
);
INSERT INTO stored.names SELECT 0, '' WHERE NOT EXISTS (SELECT 1 FROM stored.names);
