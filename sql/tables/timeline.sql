-- One row per phase of a NIC: what it did, when.
-- Grain: window_start_ns, job_id, addr, start_ns, phase, peer.  From: flows, pairs, steps.
CREATE TABLE IF NOT EXISTS timeline (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    addr VARCHAR NOT NULL,            -- the NIC
    start_ns BIGINT NOT NULL,         -- start of the phase
    end_ns BIGINT NOT NULL,           -- end of the phase, exclusive
    phase VARCHAR NOT NULL,           -- compute, pp_send, pp_recv, dp_sync, idle, other
    peer VARCHAR,                     -- the other NIC; NULL for compute and idle
    bytes BIGINT NOT NULL,            -- bytes moved; 0 for compute and idle
    step_index INTEGER NOT NULL       -- the job's step, counted from 0 in each window; the same for all members
);
