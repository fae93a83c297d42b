-- The windows there are: the first, the newest, and what the newest finished one is.
SELECT
    min(window_start_ns) AS first_ns,
    max(window_end_ns) AS end_ns,
    max(window_end_ns) FILTER (WHERE status = 'done') AS done_end_ns,
    min(window_end_ns - window_start_ns) AS length_ns
FROM windows;
