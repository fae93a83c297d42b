-- Files that are known to have one of some contents, and are no copies.
SELECT source_file, digest, size_bytes, modified_ns
FROM flow_files
WHERE digest IN (SELECT unnest($digests::VARCHAR[])) AND copy_of IS NULL
ORDER BY source_file
