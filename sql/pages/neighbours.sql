-- The windows before and after a window, and those of them that have a job of an id.
SELECT
    max(window_start_ns) FILTER (WHERE window_start_ns < $window_start_ns) AS before_ns,
    min(window_start_ns) FILTER (WHERE window_start_ns > $window_start_ns) AS after_ns
FROM jobs
WHERE
    window_start_ns BETWEEN $window_start_ns - 10 * $length_ns AND $window_start_ns + 10 * $length_ns
    AND ($job_id::VARCHAR IS NULL OR job_id = $job_id::VARCHAR);
