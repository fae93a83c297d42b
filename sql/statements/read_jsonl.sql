-- The records of a file of JSON lines; fields by name, as text. A line that is no JSON object is malformed.
WITH documents AS NOT MATERIALIZED (
    SELECT
        line_number AS source_position,
        line AS source_line,
        try_cast(line AS JSON) AS document
    FROM (/* lines */)
),

split AS NOT MATERIALIZED (
    SELECT
        source_position,
        source_line,
        document AS source_record,
        coalesce(json_type(document) <> 'OBJECT', true) AS malformed,
        json_extract_string(
            document,
            [
                '$.flow_start_ns', '$.flow_end_ns', '$.src_addr', '$.dst_addr', '$.src_port', '$.dst_port', '$.protocol',
                '$.bytes', '$.packets', '$.switch_path'
            ]
        ) AS fields
    FROM documents
)

SELECT
    source_position,
    source_line,
    malformed,
    source_record,
    nullif(fields[1], '') AS flow_start_ns,
    nullif(fields[2], '') AS flow_end_ns,
    nullif(fields[3], '') AS src_addr,
    nullif(fields[4], '') AS dst_addr,
    nullif(fields[5], '') AS src_port,
    nullif(fields[6], '') AS dst_port,
    nullif(fields[7], '') AS protocol,
    nullif(fields[8], '') AS bytes,
    nullif(fields[9], '') AS packets,
    nullif(fields[10], '') AS switch_path
FROM split
