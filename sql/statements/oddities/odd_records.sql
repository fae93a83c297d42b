-- Of a file: its records, those with an odd time or number, those with a path that is joined, and those with an
-- odd one. One switch alone shows no separator: traffic within a leaf says nothing about the others.
SELECT
    count(*),
    count(*) FILTER (WHERE reason IN ('not_a_time', 'not_a_number')),
    count(*) FILTER (WHERE len(switch_path) > 1 OR reason = 'not_a_path'),
    count(*) FILTER (WHERE reason = 'not_a_path')
FROM staged
WHERE file = $file
