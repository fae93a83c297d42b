-- The records of a file of JSON lines; fields as text. A line that is no JSON object is malformed.
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
        json_extract_string(document, $keys) AS texts
    FROM documents
)

SELECT
    source_position,
    source_line,
    malformed,
    source_record,
    /* fields */
FROM split
