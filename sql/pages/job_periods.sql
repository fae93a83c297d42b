-- The typical step of jobs over a long range: one row for each job and each slice of the range. A window's period is the
-- typical step of the window and its look-back.
SELECT
    job_id,
    $from_ns + (window_start_ns - $from_ns) // $slice_ns * $slice_ns AS slice_ns,
    median(period_ns) / 1e9 AS median_step_s,
    min(period_ns) / 1e9 AS shortest_step_s,
    max(period_ns) / 1e9 AS longest_step_s
FROM jobs
WHERE
    window_start_ns >= $from_ns AND window_start_ns < $to_ns
    AND job_id IN (SELECT unnest($jobs::VARCHAR[]))
    AND period_ns IS NOT NULL
GROUP BY ALL
ORDER BY job_id, slice_ns
LIMIT $most;
