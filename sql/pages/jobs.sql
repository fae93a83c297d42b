-- The jobs of a range, or one of them by its id: each as its last window shows it, the largest first.
SELECT
    *,
    count(*) OVER (PARTITION BY job_id) AS windows
FROM jobs
WHERE
    window_start_ns >= $from_ns AND window_start_ns < $to_ns
    AND ($job_id::VARCHAR IS NULL OR job_id = $job_id::VARCHAR)
QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY window_start_ns DESC) = 1
ORDER BY endpoints DESC, job_id
LIMIT $most;
