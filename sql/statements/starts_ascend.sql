-- Whether no accepted record of a window starts before the one that was read before it.
SELECT count(*) FILTER (WHERE flow_start_ns < before) = 0
FROM (
    SELECT flow_start_ns, lag(flow_start_ns) OVER () AS before
    FROM staged
    WHERE window_start_ns = $window_start_ns AND reason IS NULL
)
