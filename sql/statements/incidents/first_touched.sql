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
),

earlier AS MATERIALIZED (
    SELECT * FROM stored.incidents WHERE first_window_start_ns < $since_ns
),

aside AS MATERIALIZED (  -- few jobs, so that few incidents are joined with all windows below
    SELECT
        earlier.incident_id,
        earlier.first_window_start_ns,
        earlier.last_window_start_ns,
        aside_jobs.window_start_ns
    FROM earlier
    INNER JOIN aside_jobs ON earlier.tenant = aside_jobs.job_id
    WHERE aside_jobs.window_start_ns > earlier.last_window_start_ns AND aside_jobs.window_start_ns < $since_ns
),

told_since AS (  -- finished windows since, and how many of them do not count
    SELECT
        spans.first_window_start_ns,
        (
            SELECT count(*) FROM finished WHERE finished.window_start_ns > spans.last_window_start_ns
        ) - spans.untold AS windows
    FROM (
        SELECT
            aside.first_window_start_ns,
            aside.last_window_start_ns,
            count(*) AS untold
        FROM aside
        INNER JOIN finished ON aside.window_start_ns = finished.window_start_ns
        GROUP BY aside.incident_id, aside.first_window_start_ns, aside.last_window_start_ns
    ) AS spans
),

silent AS (
    SELECT
        earlier.first_window_start_ns,
        count(*) FILTER (jobs.window_start_ns < $since_ns) AS before,
        count(*) FILTER (jobs.window_start_ns >= $since_ns) AS after
    FROM earlier
    INNER JOIN jobs ON earlier.place = jobs.job_id AND earlier.last_window_start_ns <= jobs.window_start_ns
    WHERE earlier.family = 'silent'
    GROUP BY earlier.incident_id, earlier.first_window_start_ns
)

SELECT min(first_window_start_ns) AS first_ns
FROM (
    SELECT first_window_start_ns FROM earlier
    WHERE last_window_start_ns >= coalesce((SELECT window_start_ns FROM near), 0)
    UNION ALL
    SELECT first_window_start_ns FROM told_since
    WHERE windows < 2
    UNION ALL
    SELECT first_window_start_ns FROM silent
    WHERE before < 10 AND after > 0
);
