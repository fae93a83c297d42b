-- The windows of a range and before it, as the states of minutes are told from them.
SELECT
    window_start_ns,
    status,
    rows_read,
    flows_digest,
    expired
FROM windows
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns
LIMIT $most;
