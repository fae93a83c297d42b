-- Refuse the records of addresses that are `beyond`. They stay in their files: a copy of each would take the memory and the
-- room that putting them aside is to save.
UPDATE staged SET reason = 'unlisted_flood', record = '"put aside, see the file"'
WHERE
    reason IS NULL
    AND (
        (window_start_ns, src_addr) IN (SELECT (window_start_ns, addr) FROM beyond)
        OR (window_start_ns, dst_addr) IN (SELECT (window_start_ns, addr) FROM beyond)
    )
