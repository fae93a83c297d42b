-- Give the next numbers to the incoming values that have none yet, in their order.
INSERT INTO stored./* place */
WITH incoming AS MATERIALIZED (SELECT value FROM incoming_values)

SELECT
    (SELECT max(number) FROM stored./* place */) + row_number() OVER (ORDER BY incoming.value) AS number,
    incoming.value
FROM incoming
ANTI JOIN stored./* place */ USING (value)
