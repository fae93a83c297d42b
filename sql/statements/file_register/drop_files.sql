-- Forget the incoming files that are not as they were.
DELETE FROM flow_files
WHERE
    source_file IN (SELECT source_file FROM incoming_files)
    AND NOT EXISTS (
        FROM incoming_files AS incoming
        WHERE
            incoming.source_file = flow_files.source_file
            AND incoming.size_bytes = flow_files.size_bytes
            AND incoming.modified_ns = flow_files.modified_ns
            AND incoming.digest = flow_files.digest
            AND incoming.records = flow_files.records
            AND incoming.copy_of IS NOT DISTINCT FROM flow_files.copy_of
    )
