-- Hosts, switches and links by what their faults cost in the time; at most 50.
-- Grain: subject_type, place.  From: diagnoses, job_members.  Costs in GPU-seconds; several faults of a window share one loss.
WITH by_window AS (
    SELECT
        diagnoses.window_start_ns,
        diagnoses.job_id,
        CASE diagnoses.subject_type WHEN 'addr' THEN 'host' ELSE diagnoses.subject_type END AS subject_type,
        coalesce(job_members.host, diagnoses.subject) AS place,
        max(diagnoses.lost_gpu_s) AS lost_gpu_s,
        max(diagnoses.severity) AS severity,
        list(diagnoses.kind) AS kinds
    FROM diagnoses
    LEFT JOIN job_members
        ON
            diagnoses.subject_type = 'addr'
            AND diagnoses.window_start_ns = job_members.window_start_ns
            AND diagnoses.job_id = job_members.job_id
            AND diagnoses.subject = job_members.addr
    WHERE
        diagnoses.window_start_ns >= $from_ns AND diagnoses.window_start_ns < $to_ns
        AND diagnoses.rank = 1
        AND diagnoses.job_id IN ($job_id)
    GROUP BY ALL
)

SELECT
    subject_type,
    place,
    array_to_string(list_sort(list_distinct(flatten(list(kinds)))), ', ') AS kinds,
    count(DISTINCT window_start_ns) AS windows,
    max(severity) AS worst_severity,
    sum(lost_gpu_s) AS lost_gpu_s
FROM by_window
WHERE subject_type <> 'job'
GROUP BY subject_type, place
ORDER BY lost_gpu_s DESC NULLS LAST, windows DESC, place
LIMIT 50;
