-- One row per thing that a NIC does, and with whom, that the timeline names by its number.
-- Grain: number; and value, which no other row has.  From: timeline.
-- Row 0 is touched by whoever adds rows: of two that do so at once, one has to start over.
CREATE TABLE IF NOT EXISTS stored.acts (
    number INTEGER NOT NULL,
    value STRUCT(phase VARCHAR, peer VARCHAR) NOT NULL
);
INSERT INTO stored.acts SELECT 0, {'phase': '', 'peer': ''} WHERE NOT EXISTS (SELECT 1 FROM stored.acts);
