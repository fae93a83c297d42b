-- What some NICs of a job did in some steps of a window.
SELECT
    addr,
    start_ns,
    end_ns,
    phase,
    peer,
    bytes,
    step_index
FROM timeline
WHERE
    window_start_ns = $window_start_ns
    AND job_id = $job_id
    AND step_index BETWEEN $first_step AND $last_step
    AND addr IN (SELECT unnest($addrs::VARCHAR[]))
ORDER BY addr, start_ns, end_ns
LIMIT $most;
