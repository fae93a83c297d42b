-- The length of windows that are not $length_ns long, of the first such; no row when all are.
SELECT window_end_ns - window_start_ns AS length_ns
FROM windows
WHERE window_end_ns - window_start_ns <> $length_ns
ORDER BY window_start_ns
LIMIT 1
