-- What became of each window: records by what happened to them, and how long its stages took.
-- Grain: window_start_ns.  From: window_bookkeeping.  Durations in s.
SELECT
    window_start AS time,
    rows_landed AS landed,
    rows_quarantined AS quarantined,
    stages_s
FROM window_bookkeeping
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns
ORDER BY time;
