-- One row per pair of NICs and step: the pair's flows divided into steps, before its kind is known.
-- Grain: window_start_ns, job_id, src_addr, dst_addr, step_index.  From: flows, jobs, job_members.
CREATE TABLE IF NOT EXISTS pair_steps (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    src_addr VARCHAR NOT NULL,        -- sending NIC
    dst_addr VARCHAR NOT NULL,        -- receiving NIC
    step_index INTEGER NOT NULL,      -- the job's step, counted from 0 in each window; the same for all members
    start_ns BIGINT NOT NULL,         -- first flow's start
    end_ns BIGINT NOT NULL,           -- last flow's end
    flows BIGINT NOT NULL,            -- flow records
    bytes BIGINT NOT NULL,            -- their bytes
    distinct_sizes INTEGER NOT NULL   -- different record sizes among them
);
