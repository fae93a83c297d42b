-- One row per window that was ever expected: when its runs began and ended, what the last one saw, and a mark if due.
-- Grain: window_start_ns.  From: runs of windows, the schedule, and landings that find records of other windows.
CREATE TABLE IF NOT EXISTS minutes (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    expected_ns BIGINT NOT NULL,      -- when it became expected, by the clock
    expected_by VARCHAR NOT NULL,     -- schedule (each minute is), or run (somebody ran it)
    begun_ns BIGINT,                  -- when its last run began to land, by the clock; NULL before
    seen VARCHAR[],                   -- digests of the flows that this run saw, oldest window first
    runs INTEGER NOT NULL,            -- runs that were finished
    last_run_ns BIGINT,               -- when the last of them was finished, by the clock
    due_since_ns BIGINT,              -- when it was marked as due, by the clock
    due_reason VARCHAR,               -- the mark, such as late_records; a run takes it away
    tries INTEGER NOT NULL,           -- times it was taken up as due since its last finished run or mark
    tried_ns BIGINT                   -- when it was last taken up as due, by the clock
);
