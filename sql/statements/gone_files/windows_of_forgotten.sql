-- The windows that were landed from $files and still have their flows, with all files they were landed from.
SELECT parts.window_start_ns, parts.source_file
FROM flow_file_windows AS parts
SEMI JOIN (
    FROM flow_file_windows
    WHERE landed AND source_file IN (SELECT unnest($files::VARCHAR[]))
) AS forgotten USING (window_start_ns)
SEMI JOIN (
    FROM windows
    WHERE NOT list_contains(coalesce(expired, []), 'flows')
) AS kept USING (window_start_ns)
WHERE parts.landed
