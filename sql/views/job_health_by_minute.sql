-- One row per job and window: how long its steps took, and its worst diagnosis.
-- Grain: window_start_ns, job_id.  From: jobs, steps, diagnoses.  Durations in s, severity as ratio of time lost, costs in GPU-seconds.
CREATE OR REPLACE VIEW job_health_by_minute AS
WITH job_steps AS (  -- a job's own steps have no addr; a step begins at the end of the previous one
    SELECT
        window_start_ns,
        job_id,
        count(*) AS steps,
        median(end_ns - start_ns) / 1e9 AS median_step_s,
        max(end_ns - start_ns) / 1e9 AS longest_step_s
    FROM steps
    WHERE addr IS NULL
    GROUP BY window_start_ns, job_id
),

job_troubles AS (  -- the first suspect says more than the effect on the job; what is latent is no trouble of it yet
    SELECT
        window_start_ns,
        job_id,
        count(*) AS diagnoses,
        max(severity) AS worst_severity,
        max(lost_gpu_s) AS lost_gpu_s,
        first(explanation ORDER BY rank NULLS LAST, severity DESC, kind, subject) AS worst_explanation
    FROM diagnoses
    WHERE kind <> 'latent'
    GROUP BY window_start_ns, job_id
)

SELECT
    make_timestamp(jobs.window_start_ns // 1000) AS window_start,
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
    jobs.confidence,
    jobs.explained_bytes,
    coalesce(job_steps.steps, 0) AS steps,
    job_steps.median_step_s,
    job_steps.longest_step_s,
    coalesce(job_troubles.diagnoses, 0) AS diagnoses,
    job_troubles.worst_severity,
    job_troubles.lost_gpu_s,
    job_troubles.worst_explanation,
    jobs.window_start_ns
FROM jobs
LEFT JOIN job_steps ON jobs.window_start_ns = job_steps.window_start_ns AND jobs.job_id = job_steps.job_id
LEFT JOIN job_troubles ON jobs.window_start_ns = job_troubles.window_start_ns AND jobs.job_id = job_troubles.job_id;
