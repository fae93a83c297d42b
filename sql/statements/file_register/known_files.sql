-- What is known of $files, and when the file that a copy is of was last changed.
SELECT files.*, originals.modified_ns AS original_modified_ns
FROM flow_files AS files
LEFT JOIN flow_files AS originals ON files.copy_of = originals.source_file
WHERE files.source_file IN (SELECT unnest($files::VARCHAR[]))
