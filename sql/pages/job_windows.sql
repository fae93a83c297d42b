-- The windows of a range in which a job was seen.
SELECT window_start_ns
FROM jobs
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns AND job_id = $job_id
ORDER BY window_start_ns
LIMIT $most;
