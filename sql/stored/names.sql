-- One row per distinct address, with the number that stands for it in other tables.
-- Grain: number; value is unique, too.  From: flows.
-- Writers update row 0 before they add rows: of two that do so at once, one conflicts and starts over.
CREATE TABLE IF NOT EXISTS stored.names (
    number INTEGER NOT NULL,
    value VARCHAR NOT NULL
);
INSERT INTO stored.names SELECT 0, '' WHERE NOT EXISTS (SELECT 1 FROM stored.names);
