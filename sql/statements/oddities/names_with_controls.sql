-- The names of switches that hold control characters ($controls), each with what is left of it without them, and with
-- whether another name is the same then, or nothing is left.
WITH names AS (
    SELECT DISTINCT unnest(switch_path) AS name
    FROM staged
),

cleaned AS (
    SELECT
        name,
        regexp_replace(name, $controls, '', 'g') AS clean
    FROM names
)

SELECT
    name,
    clean,
    clean = '' OR count(*) OVER (PARTITION BY clean) > 1 AS is_ambiguous
FROM cleaned
QUALIFY regexp_matches(name, $controls)
ORDER BY is_ambiguous DESC, name
