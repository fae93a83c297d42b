-- A job's steps, its own and those of its NICs, of which some part lies in a time.
-- Grain: window_start_ns, addr, step_index.  From: steps.
SELECT
    window_start_ns,
    addr,
    step_index,
    start_ns,
    end_ns
FROM steps
WHERE
    job_id = $job_id
    AND end_ns > $start_ns
    AND start_ns < $end_ns
    AND (addr IS NULL OR $addrs::VARCHAR[] IS NULL OR list_contains($addrs::VARCHAR[], addr));
