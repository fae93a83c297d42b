-- Results of one hour of a platform of 2,880 GPUs: 20 jobs of 144 GPUs on 18 hosts each, 8 steps of 7.5 s a minute.
-- In each hour one host is slow from minute 10 to 29, and one leaf switch from minute 40 to 44. Once a day a job hangs.
-- Every six hours one minute was never run.
-- Each statement is preceded by the table that it fills.

-- nics
CREATE OR REPLACE TEMP TABLE nics AS
SELECT
    'job-' || lpad(to_hex(host // 18 * 7919 + 4096), 8, '0') AS job_id,
    host // 18 AS job,
    'node' || lpad(host::VARCHAR, 4, '0') AS host,
    '10.' || (1 + gpu) || '.' || (host // 250) || '.' || (host % 250) AS addr,
    (host % 18) // 9 AS pp_stage,
    2 * gpu + (host % 18) // 9 AS dp_group,
    host AS host_number,
    1 + host * 8 + gpu AS number
FROM range(360) AS hosts (host), range(8) AS gpus (gpu);

-- times
CREATE OR REPLACE TEMP TABLE times AS
SELECT
    $first_ns + minute * 60000000000 AS window_start_ns,
    minute,
    $hour * 37 % 360 AS slow_host,
    minute BETWEEN 10 AND 29 AS is_slow
FROM range(60) AS numbers (minute)
WHERE minute <> 33 OR $hour % 6 <> 2;

-- seats
CREATE OR REPLACE TEMP TABLE seats AS
SELECT
    times.*,
    nics.*,
    CASE WHEN is_slow AND job = slow_host // 18 THEN 9500000000 ELSE 7500000000 END AS step_ns
FROM times, nics;

-- minutes
INSERT INTO minutes BY NAME
SELECT
    $first_ns + minute * 60000000000 AS window_start_ns,
    window_start_ns + 60000000000 AS expected_ns,
    'schedule' AS expected_by,
    CASE WHEN minute <> 33 OR $hour % 6 <> 2 THEN window_start_ns + 125000000000 END AS begun_ns,
    [md5((($hour % 6 * 60 + minute - back + 360) % 360)::VARCHAR) FOR back IN [5, 4, 3, 2, 1, 0]] AS seen,
    (begun_ns IS NOT NULL)::INTEGER AS runs,
    begun_ns + 14000000000 AS last_run_ns,
    0 AS tries
FROM range(60) AS numbers (minute);

-- windows
INSERT INTO windows BY NAME
SELECT
    window_start_ns,
    window_start_ns + 60000000000 AS window_end_ns,
    'done' AS status,
    CASE WHEN minute = 7 THEN 'flows may not all have arrived: some came after the allowed lateness' END AS reason,
    1500000 + minute AS rows_read,
    1500000 AS rows_landed,
    minute AS rows_quarantined,
    minute AS rows_duplicate,
    '{"recognition":2100000000,"step_division":900000000,"parallelism":1900000000,"timeline":1500000000,'
    || '"diagnosis":1700000000}' AS stage_ns,
    '0' AS software_version,
    md5(($hour % 6 * 60 + minute)::VARCHAR) AS flows_digest
FROM times;

-- flows_quarantine
INSERT INTO flows_quarantine BY NAME
SELECT
    window_start_ns,
    'duplicate' AS reason,
    'flows.parquet' AS source_file,
    position AS source_position,
    '{}' AS record
FROM times, range(minute) AS places (position);

-- validation_results
INSERT INTO validation_results BY NAME
SELECT
    window_start_ns,
    'pairs.expectation_' || lpad(number::VARCHAR, 2, '0') AS expectation,
    'column' AS "column",
    'warning' AS severity,
    number <> 3 OR minute <> 7 AS success,
    '{}' AS observed,
    CASE WHEN number = 3 AND minute = 7 THEN 1 ELSE 0 END AS unexpected_count
FROM times, range(88) AS numbers (number)
ORDER BY ALL;

-- jobs
INSERT INTO jobs BY NAME
SELECT
    window_start_ns,
    job_id,
    'training' AS kind,
    144 AS endpoints,
    18 AS hosts,
    8 AS tp,
    2 AS pp,
    9 AS dp,
    0.99 AS confidence,
    8 AS micro_batches,
    1280000000 AS gradient_bytes,
    4250000 AS activation_bytes,
    any_value(step_ns) AS period_ns,
    0.01 AS jitter_ratio
FROM seats
GROUP BY window_start_ns, job_id
ORDER BY window_start_ns, job_id;

-- job_members
INSERT INTO job_members BY NAME
SELECT window_start_ns, job_id, addr, host, pp_stage, dp_group
FROM seats
ORDER BY window_start_ns, job_id, addr;

-- steps
INSERT INTO steps BY NAME
SELECT
    window_start_ns,
    job_id,
    addr,
    step_index,
    window_start_ns + step_index * 7500000000 AS start_ns,
    window_start_ns + step_index * 7500000000 + step_ns AS end_ns
FROM (
    SELECT window_start_ns, job_id, addr, step_ns FROM seats
    UNION ALL
    SELECT DISTINCT window_start_ns, job_id, NULL, step_ns FROM seats
), range(8) AS steps (step_index)
ORDER BY window_start_ns, job_id, addr NULLS FIRST, step_index;

-- step_breakdown
INSERT INTO step_breakdown BY NAME
SELECT
    window_start_ns,
    job_id,
    addr,
    step_index,
    step_ns,
    CASE
        WHEN is_slow AND host_number = slow_host THEN step_ns - 1000000000 ELSE 5900000000 + hash(addr, step_index, minute) % 40000000
    END::BIGINT AS compute_ns,
    400000000 AS communication_ns,
    300000000 AS bubble_ns,
    step_ns - compute_ns - 700000000 AS waiting_ns,
    '10.1.' || slow_host // 250 || '.' || slow_host % 250 AS waiting_for,
    0 AS unexplained_ns
FROM seats, range(8) AS steps (step_index)
ORDER BY window_start_ns, job_id, addr, step_index;

-- pairs
INSERT INTO pairs BY NAME
SELECT
    window_start_ns,
    job_id,
    addr AS src_addr,
    '10.' || (1 + peer) || '.9.' || host_number % 250 AS dst_addr,
    CASE WHEN peer < 2 THEN 'dp' ELSE 'pp' END AS kind,
    400 AS flows,
    CASE WHEN peer < 2 THEN 10000000000 ELSE 280000000 END + minute AS bytes,
    3 AS distinct_sizes,
    0.99 AS confidence
FROM seats, range(4) AS peers (peer)
ORDER BY window_start_ns, job_id, src_addr, dst_addr;

-- diagnoses
INSERT INTO diagnoses BY NAME
SELECT DISTINCT
    window_start_ns,
    job_id,
    what.kind,
    what.subject_type,
    CASE what.subject_type WHEN 'host' THEN host WHEN 'switch' THEN 'leaf' || $hour % 20 ELSE job_id END AS subject,
    window_start_ns + 1000000000 AS start_ns,
    window_start_ns + 59000000000 AS end_ns,
    40.0 AS score,
    0.27 AS severity,
    'It computes 1.43 times as long as its peers before it sends, in 8 of 8 steps.' AS explanation,
    0.97 AS confidence,
    what.rank AS rank,
    1800.0 AS lost_gpu_s,
    1700.0 AS recoverable_gpu_s
FROM seats, (
    VALUES ('slow_compute', 'host', 1), ('cross_step', 'job', NULL), ('degraded_switch', 'switch', 1), ('hang', 'job', 1)
) AS what (kind, subject_type, rank)
WHERE
    CASE what.kind
        WHEN 'degraded_switch' THEN minute BETWEEN 40 AND 44 AND job = $hour % 20
        WHEN 'hang' THEN $hour % 24 = 3 AND minute BETWEEN 50 AND 54 AND job = 7
        ELSE is_slow AND host_number = slow_host
    END
ORDER BY ALL;
