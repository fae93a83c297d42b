-- The members of a job of whose bytes in a window most cross a switch, or a link between two switches (`other`): those
-- that are connected to it. A member that only talks to one of these has half its bytes elsewhere.
WITH members AS (
    SELECT stored.names.number
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

moved AS (
    SELECT
        landed.src_addr,
        landed.dst_addr,
        sum(landed.bytes) AS bytes,
        coalesce(sum(landed.bytes) FILTER (crossing.crosses), 0) AS crossed
    FROM stored.flows AS landed
    INNER JOIN members ON landed.src_addr = members.number
    LEFT JOIN crossing ON landed.switch_path = crossing.number
    WHERE landed.window_start_ns = $window_start_ns
    GROUP BY ALL
),

by_nic AS (
    SELECT
        number,
        sum(crossed) / sum(bytes) AS share
    FROM (SELECT unnest([src_addr, dst_addr]) AS number, bytes, crossed FROM moved)
    GROUP BY number
)

SELECT
    stored.names.value AS addr,
    count(*) OVER () = (SELECT count(*) FROM members) AS of_all
FROM by_nic
INNER JOIN members USING (number)
INNER JOIN stored.names ON by_nic.number = stored.names.number
WHERE by_nic.share > 0.75
ORDER BY addr
LIMIT $most;
