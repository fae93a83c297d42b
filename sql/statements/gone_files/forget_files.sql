-- $files are gone, or out of the source. Should one of them be seen again, it is read anew.
UPDATE flow_files SET modified_ns = -1
WHERE modified_ns <> -1 AND source_file IN (SELECT unnest($files::VARCHAR[]))
