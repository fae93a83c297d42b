-- One row per training step of each NIC: how its time is divided.
-- Grain: window_start_ns, job_id, addr, step_index.  From: flows, steps, pairs, job_members.
CREATE TABLE IF NOT EXISTS step_breakdown (
    window_start_ns BIGINT NOT NULL,   -- the window the row belongs to
    job_id VARCHAR NOT NULL,           -- the job, the same from window to window while half of its members stay
    addr VARCHAR NOT NULL,             -- the NIC
    step_index INTEGER NOT NULL,       -- the job's step, counted from 0 in each window; the same for all members
    step_ns BIGINT NOT NULL,           -- the step's length: the sum of the parts
    compute_ns BIGINT NOT NULL,        -- computing of the GPU or its host, without waiting for another NIC
    communication_ns BIGINT NOT NULL,  -- messages in flight, once both ends or all members had started
    bubble_ns BIGINT NOT NULL,         -- waiting that all members of the pp_stage have in that place of the step
    waiting_ns BIGINT NOT NULL,        -- waiting beyond bubble_ns, and for the last member of the gradient group
    waiting_for VARCHAR,               -- the NIC that caused most of waiting_ns; NULL if not known
    unexplained_ns BIGINT NOT NULL     -- time that no rule explains
);
