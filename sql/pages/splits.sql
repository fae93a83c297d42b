-- How the time of jobs' steps is divided, in some windows: means per NIC and step, in seconds.
SELECT
    window_start_ns,
    job_id,
    count(*) AS member_steps,
    avg(step_ns) / 1e9 AS step_s,
    avg(compute_ns) / 1e9 AS compute_s,
    avg(communication_ns) / 1e9 AS communication_s,
    avg(bubble_ns) / 1e9 AS bubble_s,
    avg(waiting_ns) / 1e9 AS waiting_s,
    avg(unexplained_ns) / 1e9 AS unexplained_s
FROM step_breakdown
WHERE
    window_start_ns IN (SELECT unnest($windows::BIGINT[]))
    AND window_start_ns BETWEEN $first_ns AND $last_ns
    AND job_id IN (SELECT unnest($jobs::VARCHAR[]))
GROUP BY ALL
ORDER BY window_start_ns, job_id
LIMIT $most;
