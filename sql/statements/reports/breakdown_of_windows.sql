-- How the time of a job's steps is divided in some windows.
-- Grain: window_start_ns, addr, step_index.  From: step_breakdown.
SELECT
    window_start_ns,
    addr,
    step_index,
    compute_ns,
    communication_ns
FROM step_breakdown
WHERE
    job_id = $job_id
    AND window_start_ns >= $first_ns
    AND window_start_ns <= $last_ns
    AND ($addrs::VARCHAR[] IS NULL OR list_contains($addrs::VARCHAR[], addr));
