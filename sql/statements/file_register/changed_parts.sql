-- The windows, other than the one that starts at $start_ns, whose records in the incoming files differ from what is known,
-- if they were landed, or lie between the first landed window and it: no later run would land those.
WITH changed AS (
    SELECT window_start_ns
    FROM incoming_parts
    ANTI JOIN flow_file_windows USING (window_start_ns, source_file, records, digest)
    UNION
    SELECT window_start_ns
    FROM flow_file_windows
    SEMI JOIN incoming_files USING (source_file)
    ANTI JOIN incoming_parts USING (window_start_ns, source_file, records, digest)
)

SELECT window_start_ns
FROM changed
WHERE
    window_start_ns <> $start_ns
    AND (
        window_start_ns IN (SELECT window_start_ns FROM windows)
        OR (window_start_ns < $start_ns AND window_start_ns > (SELECT min(window_start_ns) FROM windows))
    )
ORDER BY window_start_ns
