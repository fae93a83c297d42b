-- Give the reason `duplicate` to all but the first of several records that are equal in all columns.
-- Candidates have the start of another record, and then its hash: the exact comparison is expensive, and most landings
-- have no duplicate at all. Sorting starts is cheap, because most files are nearly sorted by start.
WITH suspect_starts AS MATERIALIZED (
    SELECT DISTINCT flow_start_ns
    FROM (SELECT flow_start_ns, lag(flow_start_ns) OVER (ORDER BY flow_start_ns) AS before FROM staged WHERE reason IS NULL)
    WHERE flow_start_ns = before
),

hashed AS MATERIALIZED (
    SELECT
        rowid AS row_number,
        hash(
            flow_start_ns, flow_end_ns, src_addr, dst_addr, src_port, dst_port, protocol, bytes, packets, switch_path
        ) AS fingerprint
    FROM staged
    SEMI JOIN suspect_starts USING (flow_start_ns)
    WHERE reason IS NULL
),

suspects AS (
    SELECT fingerprint FROM hashed GROUP BY fingerprint HAVING count(*) > 1
),

copies AS (
    SELECT
        staged.rowid AS row_number,
        row_number() OVER (
            PARTITION BY
                staged.flow_start_ns, staged.flow_end_ns, staged.src_addr, staged.dst_addr, staged.src_port,
                staged.dst_port, staged.protocol, staged.bytes, staged.packets, staged.switch_path
            ORDER BY staged.file, staged.source_position
        ) AS copy
    FROM staged
    INNER JOIN hashed ON staged.rowid = hashed.row_number
    WHERE hashed.fingerprint IN (SELECT fingerprint FROM suspects)
)

UPDATE staged SET
    reason = 'duplicate',
    record = to_json({
        'flow_start_ns': flow_start_ns,
        'flow_end_ns': flow_end_ns,
        'src_addr': src_addr,
        'dst_addr': dst_addr,
        'src_port': src_port,
        'dst_port': dst_port,
        'protocol': protocol,
        'bytes': bytes,
        'packets': packets,
        'switch_path': switch_path
    })
FROM copies
WHERE staged.rowid = copies.row_number AND copies.copy > 1
