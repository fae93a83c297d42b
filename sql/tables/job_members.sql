-- One row per NIC of a job.
-- Grain: window_start_ns, job_id, addr.  From: flows, topology.
CREATE TABLE IF NOT EXISTS job_members (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    addr VARCHAR NOT NULL,            -- the NIC
    host VARCHAR NOT NULL,            -- its host
    pp_stage INTEGER,                 -- pipeline stage, 0 the one that begins a step; 0 for all without a pipeline
    dp_group INTEGER                  -- number of the group whose members synchronise gradients with each other
);
