-- How many records of a window were read, accepted, refused, and refused as duplicates.
SELECT
    count(*) AS read,
    count(*) - count(reason) AS landed,
    count(reason) AS quarantined,
    count(*) FILTER (WHERE reason = 'duplicate') AS duplicate
FROM staged
WHERE window_start_ns = $window_start_ns
