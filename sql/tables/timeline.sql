-- One row per phase of a NIC: what it did, and when; stored with numbers for its texts.
-- Grain: window_start_ns, job_id, addr, start_ns, phase, peer.  From: flows, pairs, steps.
CREATE OR REPLACE VIEW timeline AS (
    SELECT
        told.window_start_ns,          -- the window the row belongs to
        nic.value.job_id AS job_id,    -- the job, the same from window to window while half of its members stay
        nic.value.addr AS addr,        -- the NIC
        told.start_ns,                 -- start of the phase
        told.end_ns,                   -- end of the phase, exclusive
        act.value.phase AS phase,      -- compute, pp_send, pp_recv, dp_sync, idle, other
        act.value.peer AS peer,        -- the other NIC; NULL for compute and idle
        told.bytes,                    -- bytes moved; 0 for compute and idle
        told.step_index                -- the job's step, counted from 0 in each window; the same for all members
    FROM stored.timeline AS told
    INNER JOIN stored.nics AS nic ON told.nic = nic.number
    INNER JOIN stored.acts AS act ON told.act = act.number
);
