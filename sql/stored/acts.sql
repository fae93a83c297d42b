-- One row per distinct phase and peer of the timeline, with the number that stands for them.
-- Grain: number; value is unique, too.  From: timeline.
-- Writers update row 0 before they add rows: of two that do so at once, one conflicts and starts over.
CREATE TABLE IF NOT EXISTS stored.acts (
    number INTEGER NOT NULL,
    value STRUCT(phase VARCHAR, peer VARCHAR) NOT NULL
);
INSERT INTO stored.acts SELECT 0, {'phase': '', 'peer': ''} WHERE NOT EXISTS (SELECT 1 FROM stored.acts);
