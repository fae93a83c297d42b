-- Take the run times of some stages out of the row of the window that starts at $start_ns: what they made is cleared.
-- $nothing has each of them with null, which a merge takes away.
UPDATE windows SET stage_ns = json_merge_patch(stage_ns, $nothing::JSON) WHERE window_start_ns = $start_ns;
