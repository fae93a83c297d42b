-- The unit that most times of a reader's records look like, though they are said to be in another, with the number of records and the first example.
-- The ranges are those of the years 2000 to 2199, in each unit: they do not overlap.
WITH times AS (
    SELECT source_position, 'flow_start_ns' AS field, flow_start_ns::VARCHAR AS value FROM (/* records */)
    UNION ALL
    SELECT source_position, 'flow_end_ns' AS field, flow_end_ns::VARCHAR AS value FROM (/* records */)
),

looked_at AS (
    SELECT
        source_position,
        field,
        value,
        try_cast(value AS DOUBLE) AS number,
        CASE
            WHEN number >= 946684800 AND number < 7258118400 THEN 's'
            WHEN number >= 946684800e3 AND number < 7258118400e3 THEN 'ms'
            WHEN number >= 946684800e6 AND number < 7258118400e6 THEN 'us'
            WHEN number >= 946684800e9 AND number < 7258118400e9 THEN 'ns'
            WHEN number IS NULL AND try_cast(value AS TIMESTAMP_NS) IS NOT NULL THEN 'iso'
        END AS unit
    FROM times
)

SELECT field, unit, count(*) AS records, arg_min(value, source_position) AS example
FROM looked_at
WHERE unit <> CASE field WHEN 'flow_start_ns' THEN $start_unit ELSE $end_unit END
GROUP BY field, unit
ORDER BY records DESC, field DESC
LIMIT 1
