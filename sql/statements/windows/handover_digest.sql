-- One row: how many flows the windows of a span have, and a digest of them that does not depend on the order of rows.
-- From: stored.flows, and what its numbers stand for; later numbers are left out, for flows of later windows add them.
WITH flows AS (
    FROM stored.flows WHERE window_start_ns >= $start_ns AND window_start_ns < $end_ns
),
rows AS (
    SELECT
        count(*) AS count,
        sum(hash(window_start_ns, flow_start_ns, flow_end_ns, src_addr, dst_addr, bytes, switch_path)) AS digest,
        greatest(max(src_addr), max(dst_addr)) AS last_name,
        max(switch_path) AS last_path
    FROM flows
),
names AS (
    SELECT sum(hash(number, value)) AS digest FROM stored.names WHERE number <= (SELECT last_name FROM rows)
),
paths AS (
    SELECT sum(hash(number, value)) AS digest FROM stored.paths WHERE number <= (SELECT last_path FROM rows)
)
SELECT rows.count, concat_ws(' ', rows.digest, names.digest, paths.digest) FROM rows, names, paths;
