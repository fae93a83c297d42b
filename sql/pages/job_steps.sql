-- A job's own steps in a range.
SELECT
    window_start_ns,
    step_index,
    start_ns,
    end_ns,
    (end_ns - start_ns) / 1e9 AS duration_s
FROM steps
WHERE
    window_start_ns >= $from_ns AND window_start_ns < $to_ns
    AND job_id = $job_id AND addr IS NULL
ORDER BY end_ns
LIMIT $most;
