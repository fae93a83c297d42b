-- The NICs of a job in a window, in the order in which a reader looks for them.
SELECT
    window_start_ns,
    addr,
    host,
    pp_stage,
    dp_group
FROM job_members
WHERE window_start_ns = $window_start_ns AND job_id = $job_id
ORDER BY pp_stage NULLS LAST, host, addr
LIMIT $most;
