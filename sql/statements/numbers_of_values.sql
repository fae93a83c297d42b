-- The number of each incoming value, in order; NULL for those that have none.
-- Values are taken in before they are joined: what DuckDB would have Arrow leave out of them, Arrow cannot for every type.
WITH incoming AS MATERIALIZED (SELECT row, value FROM incoming_values)

SELECT place.number
FROM incoming
LEFT JOIN stored./* place */ AS place USING (value)
ORDER BY incoming.row
