-- The files that windows of a span were landed from, but for $there, and for contents that are read from another file.
SELECT parts.window_start_ns, parts.source_file, parts.records
FROM flow_file_windows AS parts
LEFT JOIN flow_files AS files USING (source_file)
WHERE
    parts.landed
    AND parts.window_start_ns >= $start_ns
    AND parts.window_start_ns < $end_ns
    AND parts.source_file NOT IN (SELECT unnest($there::VARCHAR[]))
    AND coalesce(files.digest, '') NOT IN (
        SELECT unnest($digests::VARCHAR[])
        UNION
        SELECT digest FROM flow_files WHERE source_file IN (SELECT unnest($there::VARCHAR[]))
    )
ORDER BY parts.window_start_ns, parts.source_file
