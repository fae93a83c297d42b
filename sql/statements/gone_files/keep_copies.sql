-- Records of the window that were duplicates when it was landed before are so still: all its flows of then are kept.
UPDATE staged SET
    reason = 'duplicate',
    record = kept_copies.record
FROM kept_copies
WHERE
    staged.window_start_ns = $window_start_ns
    AND staged.reason IS NULL
    AND staged.file = kept_copies.file
    AND staged.source_position = kept_copies.source_position
