-- One row per job seen in a window.
-- Grain: window_start_ns, job_id.  From: flows, topology.
CREATE TABLE IF NOT EXISTS jobs (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    kind VARCHAR NOT NULL,            -- training or other
    endpoints INTEGER NOT NULL,       -- GPU NICs in the job
    hosts INTEGER NOT NULL,           -- hosts in the job
    tp INTEGER,                       -- tensor-parallel degree
    pp INTEGER,                       -- pipeline-parallel degree
    dp INTEGER,                       -- data-parallel degree
    confidence DOUBLE NOT NULL        -- ratio, 0 to 1: how sure the row is
);
