-- One row per training step of each NIC, and of the job itself (addr NULL).
-- Grain: window_start_ns, job_id, addr, step_index.  From: flows, pairs.
CREATE TABLE IF NOT EXISTS steps (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    addr VARCHAR,                     -- the NIC; NULL for the job's own step
    step_index INTEGER NOT NULL,      -- the job's step, counted from 0 in each window; the same for all members
    start_ns BIGINT NOT NULL,         -- where the previous step ended; of the first step seen, its first flow
    end_ns BIGINT NOT NULL            -- end of the step's gradient synchronisation
);
