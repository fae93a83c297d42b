-- How long the steps of jobs took over a range: one row for each job and each slice of the range.
SELECT
    job_id,
    $from_ns + (window_start_ns - $from_ns) // $slice_ns * $slice_ns AS slice_ns,
    median(end_ns - start_ns) / 1e9 AS median_step_s,
    min(end_ns - start_ns) / 1e9 AS shortest_step_s,
    max(end_ns - start_ns) / 1e9 AS longest_step_s
FROM steps
WHERE
    window_start_ns >= $from_ns AND window_start_ns < $to_ns
    AND addr IS NULL
    AND job_id IN (SELECT unnest($jobs::VARCHAR[]))
GROUP BY ALL
ORDER BY job_id, slice_ns
LIMIT $most;
