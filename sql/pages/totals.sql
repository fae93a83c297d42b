-- The records that the windows of a range read, and the longest time that one took.
SELECT
    coalesce(sum(rows_read), 0)::BIGINT AS rows_read,
    coalesce(sum(rows_quarantined), 0)::BIGINT AS rows_quarantined,
    max(list_sum(json_extract(stage_ns, '$.*')::BIGINT[])) / 1e9 AS longest_s
FROM windows
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns;
