-- What some NICs of a job did in a time.
SELECT
    window_start_ns,
    addr,
    start_ns,
    end_ns,
    phase,
    peer,
    bytes,
    step_index
FROM timeline
WHERE
    window_start_ns BETWEEN $first_ns AND $last_ns
    AND job_id = $job_id
    AND end_ns >= $start_ns
    AND start_ns < $end_ns
    AND addr IN (SELECT unnest($addrs::VARCHAR[]))
ORDER BY addr, start_ns, end_ns
LIMIT $most;
