-- The records of the Parquet file $file_name that start in [$from_ns, $to_ns), and those with an unusable start.
-- The conditions are on the plain column, so that row groups without such a record are not read.
-- The row without types gives each column of the contract a name if the file lacks it.
SELECT
    NULL AS flow_start_ns,
    NULL AS flow_end_ns,
    NULL AS src_addr,
    NULL AS dst_addr,
    NULL AS src_port,
    NULL AS dst_port,
    NULL AS protocol,
    NULL AS bytes,
    NULL AS packets,
    NULL AS switch_path
WHERE false
UNION ALL BY NAME
SELECT
    *,
    false AS malformed,
    file_row_number + 1 AS source_position,
    NULL::VARCHAR AS source_line,
    source AS source_record
FROM read_parquet($file_name) AS source
WHERE
    (flow_start_ns >= $from_ns AND flow_start_ns < $to_ns)
    OR flow_start_ns IS NULL
    OR flow_start_ns < 0
    OR flow_start_ns >= 7258118400000000000
