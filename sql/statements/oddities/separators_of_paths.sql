-- The sign that joins the switches of most paths, though it is not `|`, with the number of paths and the first example.
SELECT
    regexp_extract(switch_path::VARCHAR, '->|[;,>]') AS sign,
    count(*) AS paths,
    arg_min(switch_path::VARCHAR, source_position) AS example
FROM (/* records */)
WHERE regexp_matches(switch_path::VARCHAR, '[;,>]') AND NOT starts_with(switch_path::VARCHAR, '[')
GROUP BY sign
ORDER BY paths DESC, sign
LIMIT 1
