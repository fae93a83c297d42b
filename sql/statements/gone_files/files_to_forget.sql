-- Those of $files of which something is known.
SELECT source_file FROM flow_files WHERE source_file IN (SELECT unnest($files::VARCHAR[]))
UNION
SELECT source_file FROM flow_file_windows WHERE source_file IN (SELECT unnest($files::VARCHAR[]))
