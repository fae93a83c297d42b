-- The records of $files when they were last read, by window.
SELECT source_file, window_start_ns, records, digest
FROM flow_file_windows
WHERE source_file IN (SELECT unnest($files::VARCHAR[]))
ORDER BY source_file, window_start_ns
