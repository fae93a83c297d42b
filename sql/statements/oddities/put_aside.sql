-- Refuse the records of addresses that are `beyond`.
UPDATE staged SET reason = 'unlisted_flood'
WHERE
    reason IS NULL
    AND (
        hash(src_addr, window_start_ns) IN (SELECT addr_hash FROM beyond)
        OR hash(dst_addr, window_start_ns) IN (SELECT addr_hash FROM beyond)
    )
