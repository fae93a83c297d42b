-- How long ago the latest finished window ended, and windows that a check stopped in the time.
-- Grain: one row.  From: windows.  In s.
SELECT
    epoch(now()) - max(window_end_ns) FILTER (status = 'done') / 1e9 AS lag_s,
    count(*) FILTER (status = 'stopped') AS stopped_windows
FROM windows
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns;
