-- How the windows of a range went: one row for each of at most $most slices of it.
SELECT
    $from_ns + (window_start_ns - $from_ns) // $slice_ns * $slice_ns AS slice_ns,
    count(*) AS windows,
    count(*) FILTER (WHERE status = 'done') AS done,
    count(*) FILTER (WHERE status = 'stopped') AS stopped,
    count(*) FILTER (WHERE status NOT IN ('done', 'stopped')) AS unfinished,
    count(*) FILTER (WHERE rows_read = 0) AS without_records,
    sum(rows_read)::BIGINT AS rows_read,
    sum(rows_quarantined)::BIGINT AS rows_quarantined,
    max(list_sum(json_extract(stage_ns, '$.*')::BIGINT[])) / 1e9 AS longest_s
FROM windows
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns
GROUP BY ALL
ORDER BY slice_ns
LIMIT $most;
