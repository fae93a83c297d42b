-- The records that the windows of a range read, the longest time that one took, and in how many windows many records
-- were refused or came twice (expectations of the table `windows`).
SELECT
    coalesce(sum(rows_read), 0)::BIGINT AS rows_read,
    coalesce(sum(rows_quarantined), 0)::BIGINT AS rows_quarantined,
    max(list_sum(json_extract(stage_ns, '$.*')::BIGINT[])) / 1e9 AS longest_s,
    (
        SELECT count(DISTINCT window_start_ns)
        FROM validation_results
        WHERE
            NOT success
            AND starts_with(expectation, 'windows.')
            AND window_start_ns >= $from_ns
            AND window_start_ns < $to_ns
    ) AS doubtful
FROM windows
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns;
