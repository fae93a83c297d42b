-- One row per file and window: how many records of the window the file holds, and whether they are landed.
-- Grain: window_start_ns, source_file.  From: the landing.
CREATE TABLE IF NOT EXISTS flow_file_windows (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    source_file VARCHAR NOT NULL,     -- the file
    records BIGINT NOT NULL,          -- records of the window in it, accepted and refused
    digest VARCHAR NOT NULL,          -- digest of the file's content in which they were found
    landed BOOLEAN NOT NULL           -- whether the window has been landed with them
);
