-- One row per path of switches that flows name by its number.
-- Grain: number; and value, which no other row has.  From: flows.
-- Row 0 is touched by whoever adds rows: of two that do so at once, one has to start over.
CREATE TABLE IF NOT EXISTS stored.paths (
    number INTEGER NOT NULL,
    value VARCHAR[] NOT NULL
);
INSERT INTO stored.paths SELECT 0, []::VARCHAR[] WHERE NOT EXISTS (SELECT 1 FROM stored.paths);
