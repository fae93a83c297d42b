-- Forget the windows of the incoming files that are not as they were.
DELETE FROM flow_file_windows
WHERE
    source_file IN (SELECT source_file FROM incoming_files)
    AND NOT EXISTS (
        FROM incoming_parts AS incoming
        WHERE
            incoming.window_start_ns = flow_file_windows.window_start_ns
            AND incoming.source_file = flow_file_windows.source_file
            AND incoming.records = flow_file_windows.records
            AND incoming.digest = flow_file_windows.digest
    )
