-- The number of each incoming value, in order; NULL for values without one.
-- The values are copied before they are joined, because Arrow cannot apply DuckDB's join filter to every type.
WITH incoming AS MATERIALIZED (SELECT row, value FROM incoming_values)

SELECT place.number
FROM incoming
LEFT JOIN stored./* place */ AS place USING (value)
ORDER BY incoming.row
