-- The digests of the flows of $windows windows, oldest first, the last of which starts at $start_ns; empty for a window
-- that is not there, as for one without flows.
SELECT
    list(CASE WHEN windows.window_start_ns IS NULL THEN '' ELSE windows.flows_digest END ORDER BY asked.start_ns)
FROM (
    SELECT unnest(range($start_ns - ($windows - 1) * $length_ns, $start_ns + 1, $length_ns)) AS start_ns
) AS asked
LEFT JOIN windows ON asked.start_ns = windows.window_start_ns;
