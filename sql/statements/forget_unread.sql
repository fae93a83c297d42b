-- Files of the window that starts at $start_ns which were not among $files: they are gone, or of another source. Should one
-- of them be seen again, it is read anew.
UPDATE flow_files SET modified_ns = -1
WHERE
    modified_ns <> -1
    AND source_file IN (
        SELECT source_file FROM flow_file_windows
        WHERE window_start_ns = $start_ns AND source_file NOT IN (SELECT unnest($files::VARCHAR[]))
    )
