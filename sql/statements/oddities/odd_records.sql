-- Of a file: its records, those with an odd time or number, those with a path, and those with an odd path.
SELECT
    count(*),
    count(*) FILTER (WHERE reason IN ('not_a_time', 'not_a_number')),
    count(*) FILTER (WHERE switch_path IS NOT NULL OR reason = 'not_a_path'),
    count(*) FILTER (WHERE reason = 'not_a_path')
FROM staged
WHERE file = $file
