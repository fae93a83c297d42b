-- One row per NIC of a job that rows of other tables name by its number.
-- Grain: number; and value, which no other row has.  From: timeline.
-- Row 0 is touched by whoever adds rows: of two that do so at once, one has to start over.
CREATE TABLE IF NOT EXISTS stored.nics (
    number INTEGER NOT NULL,
    value STRUCT(job_id VARCHAR, addr VARCHAR) NOT NULL
);
INSERT INTO stored.nics SELECT 0, {'job_id': '', 'addr': ''} WHERE NOT EXISTS (SELECT 1 FROM stored.nics);
