-- Whether the accepted records of a window were read in ascending order of start.
SELECT count(*) FILTER (WHERE flow_start_ns < before) = 0
FROM (
    SELECT flow_start_ns, lag(flow_start_ns) OVER () AS before
    FROM staged
    WHERE window_start_ns = $window_start_ns AND reason IS NULL
)
