-- What is kept for a day or less, of the newest minutes: the timeline and the flows of 2,880 GPUs.
-- The tables seats and nics are those of the newest hour.

-- stored.nics
INSERT INTO stored.nics BY NAME SELECT number, {'job_id': job_id, 'addr': addr} AS value FROM nics;

-- stored.names
INSERT INTO stored.names BY NAME SELECT number, addr AS value FROM nics;

-- stored.acts
INSERT INTO stored.acts BY NAME
SELECT 3 * nics.number + what.number AS number, {'phase': what.phase, 'peer': what.peer} AS value
FROM nics, LATERAL (
    VALUES (0, 'compute', NULL), (1, 'pp_send', nics.addr), (2, 'dp_sync', nics.addr)
) AS what (number, phase, peer);

-- stored.timeline
INSERT INTO stored.timeline BY NAME
SELECT
    window_start_ns,
    number AS nic,
    window_start_ns + step_index * 7500000000 + act * 170000000 AS start_ns,
    window_start_ns + step_index * 7500000000 + act * 170000000 + CASE act % 2 WHEN 0 THEN 165000000 ELSE 1000000 END AS end_ns,
    CASE WHEN act = 39 THEN 3 * number + 2 WHEN act % 2 = 0 THEN 3 * number ELSE 3 * (number % 2880 + 1) + 1 END AS act,
    CASE act % 2 WHEN 0 THEN 0 ELSE 4250000 END AS bytes,
    step_index
FROM seats, range(8) AS steps (step_index), range(40) AS acts (act)
WHERE minute >= $timeline_from
ORDER BY window_start_ns, nic, start_ns;

-- stored.flows
INSERT INTO stored.flows BY NAME
SELECT
    window_start_ns,
    window_start_ns + flow * 120000000 + number * 1000 AS flow_start_ns,
    flow_start_ns + 900000 AS flow_end_ns,
    number AS src_addr,
    number % 2880 + 1 AS dst_addr,
    4791 AS src_port,
    4791 AS dst_port,
    17 AS protocol,
    4250000 AS bytes,
    1038 AS packets,
    NULL AS switch_path
FROM seats, range(500) AS flows (flow)
WHERE minute >= $flows_from
ORDER BY window_start_ns, flow_start_ns;
