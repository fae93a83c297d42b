-- How fast the large records of a job were in each slice of some windows, those that cross a switch, or a link between
-- two switches (`other`), beside those that do not: medians, so that one record does not decide.
WITH members AS (
    SELECT DISTINCT stored.names.number
    FROM job_members
    INNER JOIN stored.names ON job_members.addr = stored.names.value
    WHERE job_members.window_start_ns = $window_start_ns AND job_members.job_id = $job_id
),

crossing AS (
    SELECT
        number,
        list_contains(value, $switch::VARCHAR) AND (
            $other::VARCHAR IS NULL OR abs(list_position(value, $switch) - list_position(value, $other)) = 1
        ) AS crosses
    FROM stored.paths
),

records AS (
    SELECT
        landed.flow_start_ns,
        landed.bytes,
        crossing.crosses,
        8.0 * landed.bytes / (landed.flow_end_ns - landed.flow_start_ns) AS gbit_s
    FROM stored.flows AS landed
    INNER JOIN members AS source ON landed.src_addr = source.number
    INNER JOIN members AS destination ON landed.dst_addr = destination.number
    INNER JOIN crossing ON landed.switch_path = crossing.number
    WHERE
        landed.window_start_ns BETWEEN $first_ns AND $last_ns
        AND landed.bytes >= $least_bytes
        AND landed.flow_end_ns > landed.flow_start_ns
)

SELECT
    flow_start_ns - flow_start_ns % $slice_ns AS slice_ns,
    crosses,
    median(gbit_s) AS gbit_s,
    count(*) AS records
FROM records
GROUP BY ALL
ORDER BY slice_ns, crosses
LIMIT $most;
