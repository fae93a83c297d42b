-- One row if there is a diagnosis, or a stored incident that begins, in the window `since_ns` or later; else none.
-- Grain: none.  From: diagnoses, stored.incidents.
SELECT 1 FROM diagnoses
WHERE window_start_ns >= $since_ns
UNION ALL
SELECT 1 FROM stored.incidents
WHERE first_window_start_ns >= $since_ns
LIMIT 1;
