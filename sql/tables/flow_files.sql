-- One row per file of flow records that was read, as it was then; a file that is sent again costs a row, and no more.
-- Grain: source_file.  From: the landing.
CREATE TABLE IF NOT EXISTS flow_files (
    window_start_ns BIGINT NOT NULL,  -- the window of its first record; that of its name, or 0, if it has none
    source_file VARCHAR NOT NULL,     -- the file
    size_bytes BIGINT NOT NULL,       -- its size
    modified_ns BIGINT NOT NULL,      -- when it was last changed, by the clock of its file system; -1 once it is gone
    digest VARCHAR NOT NULL,          -- digest of its content
    records BIGINT NOT NULL,          -- records in it; 0 for a copy
    copy_of VARCHAR                   -- the file with the same content that is read in its place; NULL if it is no copy
);
