-- One row per incident: the diagnoses of one fault in successive windows, as one thing with a beginning and an end.
-- An incident ends after two finished windows in a row without a diagnosis of it (one window alone may have had nothing
-- to judge), or when its job stops. Windows without records, windows that were not run and, for a job, windows in which
-- it was set aside do not count. A NIC and its host are one place. A switch or link is one place, whatever job suffers
-- from it. Diagnoses belong to one incident if they are: a slow device whose cause is found later or only in some
-- minutes; a hang that ends in a restart; or a slow host, or a slow job without a known cause, while that host or job
-- is known to stall. After a restart, silence because of another host is another incident. A job's slowness while
-- something else is at fault is an effect of that incident, unless it goes on for two finished windows more. A silence
-- is judged by the flows around its start, and each of its rows covers all of the silence so far. Its cost is the time
-- that the rows cover together, whichever windows have them; the subject named first had the most flows behind it.
-- The rows are found anew when a window has ended, from all windows, in whatever order these were run.
-- Grain: incident_id.  From: diagnoses, windows, jobs, job_members, steps, aside_jobs.  Severity as ratio of time lost,
-- costs in GPU-seconds.
CREATE OR REPLACE VIEW incidents AS
SELECT
    incident_id,
    state,
    job_id,
    kind,
    subject_type,
    subject,
    host,
    started,
    last_seen,
    ended,
    windows,
    peak_severity,
    peak_score,
    confidence,
    lost_gpu_s,
    recoverable_gpu_s,
    explanation,  -- like job, kind, subject, confidence and evidence, of the describing diagnosis
    evidence_sql,
    effect_of,  -- the incident that causes this slow job
    kinds,
    jobs,
    family,
    place,
    tenant,
    start_ns,
    last_seen_ns,
    end_ns,
    first_window_start_ns,
    last_window_start_ns,
    worst_window_start_ns,
    single_steps,  -- slow steps, if it is about single ones; NULL for a fault that lasts
    candidates,  -- what the describing diagnosis cannot tell apart, the likeliest first
    odds,  -- probabilities of the candidates
    went_on,  -- whether a silent job has ended steps since
    evidence_expired  -- whether the flows behind it are gone
FROM stored.incidents;
