-- The windows there are: the first, the newest, what the newest finished one is, and the end of the newest expected one.
WITH landed AS (
    SELECT
        min(window_start_ns) AS first_ns,
        max(window_end_ns) AS end_ns,
        max(window_end_ns) FILTER (WHERE status = 'done') AS done_end_ns,
        min(window_end_ns - window_start_ns) AS length_ns
    FROM windows
)

SELECT
    landed.*,
    greatest(landed.end_ns, (SELECT max(minutes.window_start_ns) FROM minutes) + landed.length_ns) AS expected_end_ns
FROM landed;
