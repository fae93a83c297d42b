-- The steps of a job and of some of its NICs, of which some part lies in a time.
SELECT
    window_start_ns,
    addr,
    step_index,
    start_ns,
    end_ns
FROM steps
WHERE
    window_start_ns BETWEEN $first_ns AND $last_ns
    AND job_id = $job_id
    AND end_ns > $start_ns
    AND start_ns < $end_ns
    AND (addr IS NULL OR addr IN (SELECT unnest($addrs::VARCHAR[])))
LIMIT $most;
