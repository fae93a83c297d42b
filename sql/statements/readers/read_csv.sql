-- The records of a CSV file: the lines after its header, which has $columns names. A record is a list of fields;
-- `name_fields` names the fields of refused records only, because a map for every record would cost more than the whole
-- reading.
WITH split AS NOT MATERIALIZED (
    SELECT
        line_number - 1 AS source_position,
        line AS source_line,
        csv_fields(line) AS texts
    FROM (/* lines */)
    WHERE line_number > 1
),

fitting AS NOT MATERIALIZED (  -- a line with more or fewer fields than the header counts as one without fields
    SELECT
        source_position,
        source_line,
        CASE WHEN len(texts) = $columns THEN texts END AS texts
    FROM split
)

SELECT
    source_position,
    source_line,
    texts IS NULL AS malformed,
    texts AS source_record,
    /* fields */
FROM fitting
