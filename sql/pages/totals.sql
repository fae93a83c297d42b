-- The records that the windows of a range read, the longest time that one took, and how many windows are doubtful.
SELECT
    coalesce(sum(rows_read), 0)::BIGINT AS rows_read,
    coalesce(sum(rows_quarantined), 0)::BIGINT AS rows_quarantined,
    max(stages_s) AS longest_s,
    count(*) FILTER (doubtful) AS doubtful
FROM window_bookkeeping
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns;
