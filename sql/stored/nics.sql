-- One row per NIC of a job, with the number that stands for it in other tables.
-- Grain: number; value is unique, too.  From: timeline.
-- Writers update row 0 before they add rows: of two that do so at once, one conflicts and starts over.
CREATE TABLE IF NOT EXISTS stored.nics (
    number INTEGER NOT NULL,
    value STRUCT(job_id VARCHAR, addr VARCHAR) NOT NULL
);
INSERT INTO stored.nics SELECT 0, {'job_id': '', 'addr': ''} WHERE NOT EXISTS (SELECT 1 FROM stored.nics);
