-- The windows of a range that were expected, as the states of minutes are told from them.
SELECT *
FROM minutes
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns
LIMIT $most;
