-- One row per step of a job: how long it took, and which NIC ended it last.
-- Grain: window_start_ns, job_id, step_index.  From: steps.  Durations in s.
CREATE OR REPLACE VIEW step_times_by_job AS
WITH last_members AS (
    SELECT
        window_start_ns,
        job_id,
        step_index,
        arg_max(addr, end_ns) AS last_addr,
        (max(end_ns) - min(end_ns)) / 1e9 AS spread_s
    FROM steps
    WHERE addr IS NOT NULL
    GROUP BY window_start_ns, job_id, step_index
)

SELECT
    make_timestamp(job_steps.window_start_ns // 1000) AS window_start,
    job_steps.job_id,
    job_steps.step_index,
    make_timestamp(job_steps.start_ns // 1000) AS step_start,
    make_timestamp(job_steps.end_ns // 1000) AS step_end,
    (job_steps.end_ns - job_steps.start_ns) / 1e9 AS duration_s,
    last_members.last_addr,
    last_members.spread_s,  -- between the first and the last member to end the step
    job_steps.window_start_ns
FROM steps AS job_steps
LEFT JOIN last_members
    ON
        job_steps.window_start_ns = last_members.window_start_ns
        AND job_steps.job_id = last_members.job_id
        AND job_steps.step_index = last_members.step_index
WHERE job_steps.addr IS NULL;
