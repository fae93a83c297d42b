-- Why records were refused, in a range.
SELECT
    reason,
    count(*) AS records
FROM flows_quarantine
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns
GROUP BY reason
ORDER BY records DESC, reason
LIMIT $most;
