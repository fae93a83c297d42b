-- All windows, and the minutes before the newest one that no run ever landed: $gone are tables of which these have no rows.
SELECT window_start_ns, window_end_ns, expired FROM windows
UNION ALL
SELECT minutes.window_start_ns, minutes.window_start_ns + newest.length_ns, $gone::VARCHAR[]
FROM minutes
ANTI JOIN windows USING (window_start_ns)
INNER JOIN (
    SELECT max(window_start_ns) AS start_ns, max(window_end_ns - window_start_ns) AS length_ns
    FROM windows
) AS newest ON minutes.window_start_ns < newest.start_ns
