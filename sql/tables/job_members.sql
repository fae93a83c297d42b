-- One row per NIC of a job.
-- Grain: window_start_ns, job_id, addr.  From: flows, topology.
CREATE TABLE IF NOT EXISTS job_members (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    addr VARCHAR NOT NULL,            -- the NIC
    host VARCHAR NOT NULL,            -- its host
    pp_stage INTEGER,                 -- pipeline stage, from 0, which begins a step; 0 for all members without a pipeline
    dp_group INTEGER                  -- number of the data-parallel group, whose members synchronise gradients
);
