-- Start of the first incident that begins before the window `since_ns` and that rows from this window on may change; NULL
-- without one. Such an incident was seen in the last ten finished windows: two tell whether it has ended, ten whether a
-- silent job goes on. Or its job was set aside in windows since, which do not count. Or it is a silence whose job may
-- only now end a step again. An open incident is one of these.
WITH finished AS (
    SELECT window_start_ns FROM windows WHERE status = 'done' AND rows_landed > 0 AND window_start_ns < $since_ns
),

near AS (
    SELECT min(window_start_ns) AS window_start_ns
    FROM (SELECT window_start_ns FROM finished ORDER BY window_start_ns DESC LIMIT 10)
)

SELECT min(first_window_start_ns) AS first_ns
FROM stored.incidents AS told
WHERE
    first_window_start_ns < $since_ns
    AND (
        last_window_start_ns >= coalesce((SELECT window_start_ns FROM near), 0)
        OR (
            tenant IN (SELECT job_id FROM aside_jobs)
            AND (
                SELECT count(*) FROM finished
                WHERE
                    finished.window_start_ns > told.last_window_start_ns
                    AND NOT EXISTS (
                        SELECT 1 FROM aside_jobs
                        WHERE aside_jobs.job_id = told.tenant AND aside_jobs.window_start_ns = finished.window_start_ns
                    )
            ) < 2
        )
        OR (
            family = 'silent'
            AND (
                SELECT count(*) FROM jobs
                WHERE
                    jobs.job_id = told.place
                    AND jobs.window_start_ns >= told.last_window_start_ns
                    AND jobs.window_start_ns < $since_ns
            ) < 10
            AND EXISTS (SELECT 1 FROM jobs WHERE jobs.job_id = told.place AND jobs.window_start_ns >= $since_ns)
        )
    );
