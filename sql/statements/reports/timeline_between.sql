-- What a job's NICs did in a time; the first $most rows.
-- Grain: window_start_ns, addr, start_ns, phase, peer.  From: timeline.
SELECT
    window_start_ns,
    addr,
    step_index,
    start_ns,
    end_ns,
    phase,
    peer,
    bytes
FROM timeline
WHERE
    job_id = $job_id
    AND end_ns >= $start_ns
    AND start_ns < $end_ns
    AND ($addrs::VARCHAR[] IS NULL OR list_contains($addrs::VARCHAR[], addr))
LIMIT $most;
