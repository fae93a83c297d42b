-- Windows of a range that want a look: stopped, unfinished, or done with a reason; the newest first.
SELECT
    window_start_ns,
    status,
    reason,
    rows_read,
    rows_quarantined
FROM windows
WHERE
    window_start_ns >= $from_ns AND window_start_ns < $to_ns
    AND (status <> 'done' OR reason IS NOT NULL)
ORDER BY (status = 'stopped') DESC, window_start_ns DESC
LIMIT $most;
