-- Make a row for each window of $starts_ns that has none.
INSERT INTO minutes BY NAME
SELECT asked.start_ns AS window_start_ns, $now_ns AS expected_ns, $by AS expected_by, 0 AS runs, 0 AS tries
FROM (SELECT DISTINCT unnest($starts_ns::BIGINT[]) AS start_ns) AS asked
ANTI JOIN minutes ON asked.start_ns = minutes.window_start_ns
ORDER BY asked.start_ns;
