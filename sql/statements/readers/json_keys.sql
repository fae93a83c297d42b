-- The keys of the JSON objects among the first $sample lines.
SELECT DISTINCT unnest(json_keys(document)) AS key
FROM (
    SELECT try_cast(line AS JSON) AS document
    FROM (/* lines */)
    WHERE line_number <= $sample
)
WHERE json_type(document) = 'OBJECT'
