-- One row per job over all its windows: its latest layout and hosts, and how long its steps took.
-- Grain: job_id.  From: jobs, job_members, steps.  Durations in s.
CREATE OR REPLACE VIEW job_overview AS
WITH spans AS (
    SELECT
        job_id,
        count(*) AS windows,
        min(window_start_ns) AS first_window_start_ns,
        max(window_start_ns) AS last_window_start_ns
    FROM jobs
    GROUP BY job_id
),

host_names AS (
    SELECT
        window_start_ns,
        job_id,
        list(DISTINCT host ORDER BY host) AS host_names
    FROM job_members
    GROUP BY window_start_ns, job_id
),

strangers AS (  -- addresses that train with the job, though the topology lacks them
    SELECT
        job_id,
        list_sort(list_distinct(flatten(list(unlisted)))) AS unlisted
    FROM jobs
    WHERE unlisted IS NOT NULL
    GROUP BY job_id
),

job_steps AS (  -- a job's own steps have no addr
    SELECT
        job_id,
        count(*) AS steps,
        median(end_ns - start_ns) / 1e9 AS median_step_s,
        quantile_cont(end_ns - start_ns, 0.95) / 1e9 AS p95_step_s
    FROM steps
    WHERE addr IS NULL
    GROUP BY job_id
)

SELECT
    jobs.job_id,
    jobs.kind,
    jobs.endpoints,
    jobs.hosts,
    jobs.tp,
    jobs.pp,
    jobs.dp,
    jobs.cp,
    jobs.ep,
    jobs.sharded,
    jobs.micro_batches,
    jobs.gradient_bytes,
    jobs.activation_bytes,
    jobs.jitter_ratio,
    jobs.explained_bytes,
    jobs.confidence,
    coalesce(job_steps.steps, 0) AS steps,
    job_steps.median_step_s,
    job_steps.p95_step_s,
    spans.windows,
    make_timestamp(spans.first_window_start_ns // 1000) AS first_window_start,
    make_timestamp(spans.last_window_start_ns // 1000) AS last_window_start,
    host_names.host_names,
    strangers.unlisted,
    spans.first_window_start_ns,
    spans.last_window_start_ns
FROM spans
INNER JOIN jobs ON spans.job_id = jobs.job_id AND spans.last_window_start_ns = jobs.window_start_ns
LEFT JOIN host_names
    ON spans.job_id = host_names.job_id AND spans.last_window_start_ns = host_names.window_start_ns
LEFT JOIN strangers ON spans.job_id = strangers.job_id
LEFT JOIN job_steps ON spans.job_id = job_steps.job_id;
