-- One row per distinct switch path, with the number that stands for it in flows.
-- Grain: number; value is unique, too.  From: flows.
-- Writers update row 0 before they add rows: of two that do so at once, one conflicts and starts over.
CREATE TABLE IF NOT EXISTS stored.paths (
    number INTEGER NOT NULL,
    value VARCHAR[] NOT NULL
);
INSERT INTO stored.paths SELECT 0, []::VARCHAR[] WHERE NOT EXISTS (SELECT 1 FROM stored.paths);
