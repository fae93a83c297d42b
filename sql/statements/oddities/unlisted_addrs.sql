-- The addresses of each window, among the accepted records, that the topology does not list and that are beyond the $most
-- which send and receive most records. A hash stands for window and address: a million texts would take the memory that
-- this is to save. Grain: window_start_ns, addr_hash.
CREATE OR REPLACE TEMP TABLE beyond AS
WITH ends AS (
    SELECT window_start_ns, src_addr AS addr FROM staged WHERE reason IS NULL
    UNION ALL
    SELECT window_start_ns, dst_addr AS addr FROM staged WHERE reason IS NULL
),

unlisted AS (
    SELECT window_start_ns, hash(addr, window_start_ns) AS addr_hash, count(*) AS records
    FROM ends
    ANTI JOIN listed_addrs USING (addr)
    GROUP BY ALL
),

crowded AS (
    SELECT window_start_ns FROM unlisted GROUP BY window_start_ns HAVING count(*) > $most
)

SELECT window_start_ns, addr_hash
FROM unlisted
SEMI JOIN crowded USING (window_start_ns)
QUALIFY row_number() OVER (PARTITION BY window_start_ns ORDER BY records DESC, addr_hash) > $most
