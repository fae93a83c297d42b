-- What the pairs of a job carried, in some windows, by kind.
SELECT
    window_start_ns,
    kind,
    count(*) AS pairs,
    sum(flows)::BIGINT AS flows,
    sum(bytes)::BIGINT AS bytes
FROM pairs
WHERE
    window_start_ns IN (SELECT unnest($windows::BIGINT[]))
    AND window_start_ns BETWEEN $first_ns AND $last_ns
    AND job_id = $job_id
GROUP BY ALL
ORDER BY window_start_ns, kind
LIMIT $most;
