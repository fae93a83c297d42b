-- Files that are known to have one of some contents, have records, and are no copies.
SELECT source_file, digest, size_bytes, modified_ns
FROM flow_files
WHERE digest IN (SELECT unnest($digests::VARCHAR[])) AND copy_of IS NULL AND records > 0
ORDER BY source_file
