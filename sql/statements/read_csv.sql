-- The records of a CSV file: the lines after its header, whose column names are $header; fields by name, as text. A
-- record is a list of fields; `name_fields` names the fields of refused records only, because a map for every record
-- would cost more than the whole reading.
WITH split AS NOT MATERIALIZED (
    SELECT
        line_number - 1 AS source_position,
        line AS source_line,
        csv_fields(line) AS fields
    FROM (/* lines */)
    WHERE line_number > 1
),

fitting AS NOT MATERIALIZED (  -- a line with more or fewer fields than the header counts as one without fields
    SELECT
        source_position,
        source_line,
        CASE WHEN len(fields) = len($header::VARCHAR[]) THEN fields END AS fields
    FROM split
)

SELECT
    source_position,
    source_line,
    fields IS NULL AS malformed,
    fields AS source_record,
    nullif(trim(fields[list_position($header::VARCHAR[], 'flow_start_ns')]), '') AS flow_start_ns,
    nullif(trim(fields[list_position($header::VARCHAR[], 'flow_end_ns')]), '') AS flow_end_ns,
    nullif(trim(fields[list_position($header::VARCHAR[], 'src_addr')]), '') AS src_addr,
    nullif(trim(fields[list_position($header::VARCHAR[], 'dst_addr')]), '') AS dst_addr,
    nullif(trim(fields[list_position($header::VARCHAR[], 'src_port')]), '') AS src_port,
    nullif(trim(fields[list_position($header::VARCHAR[], 'dst_port')]), '') AS dst_port,
    nullif(trim(fields[list_position($header::VARCHAR[], 'protocol')]), '') AS protocol,
    nullif(trim(fields[list_position($header::VARCHAR[], 'bytes')]), '') AS bytes,
    nullif(trim(fields[list_position($header::VARCHAR[], 'packets')]), '') AS packets,
    nullif(trim(fields[list_position($header::VARCHAR[], 'switch_path')]), '') AS switch_path
FROM fitting
