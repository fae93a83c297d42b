-- One row per incident: the diagnoses of one trouble, window after window, as one thing with a beginning and an end.
-- Two finished windows in a row that do not show it end it, and so does the stop of its job: one alone may only have had
-- nothing to judge. Windows without records and windows that were not run say nothing, and nor do, of a job, those in
-- which it was set aside.
-- A NIC and its host are one place, and so is a switch or link whatever job suffers from it. A slow device whose cause
-- is found later, or not in each minute, is one trouble, and so is a hang that ends in a restart; another
-- host because of which the job is silent again after that is another trouble. A host that is slow
-- while it, or for no known cause while its job, is known to stand still is one trouble with that. What a job suffers
-- while something else is to blame is an effect of that, unless it goes on for two finished windows more.
-- A silence is judged by the flows around its start, and each of its rows tells of all of it until then: what they cover
-- together is what it costs, whichever windows show it, and who was named first had the most flows to go by.
-- Grain: incident_id.  From: diagnoses, windows, jobs, job_members, steps, aside_jobs.  Severity as ratio of time lost, costs in
-- GPU-seconds.
CREATE OR REPLACE VIEW incidents AS
WITH clock AS (  -- how many windows were finished so far
    SELECT
        window_start_ns,
        (status = 'done' AND rows_landed > 0)::INTEGER AS finished,
        sum(finished) OVER (ORDER BY window_start_ns) AS finished_so_far
    FROM windows
),

untold AS (  -- finished windows that say nothing of a job
    SELECT
        aside_jobs.job_id,
        aside_jobs.window_start_ns
    FROM aside_jobs
    INNER JOIN clock ON aside_jobs.window_start_ns = clock.window_start_ns
    WHERE clock.finished = 1
),

located AS (
    SELECT
        diagnoses.*,
        CASE diagnoses.subject_type WHEN 'host' THEN diagnoses.subject ELSE job_members.host END AS subject_host,
        clock.finished_so_far - clock.finished AS finished_before,
        clock.finished_so_far
    FROM diagnoses
    INNER JOIN clock ON diagnoses.window_start_ns = clock.window_start_ns
    LEFT JOIN job_members
        ON
            diagnoses.subject_type = 'addr'
            AND diagnoses.window_start_ns = job_members.window_start_ns
            AND diagnoses.job_id = job_members.job_id
            AND diagnoses.subject = job_members.addr
),

standing AS (  -- who is known to stand still in a window beside, or whose job is
    SELECT
        located.*,
        EXISTS (
            SELECT 1 FROM located AS still
            WHERE
                still.kind = 'stalls'
                AND still.job_id = located.job_id
                AND (
                    still.subject_host = located.subject_host
                    OR (still.subject_type = 'job' AND located.kind = 'straggler')
                )
                AND located.finished_before - still.finished_so_far < 2
                AND still.finished_before - located.finished_so_far < 2
        ) AS stands_still
    FROM located
),

placed AS (
    SELECT
        standing.* EXCLUDE (finished_before, finished_so_far, stands_still),
        CASE
            WHEN
                standing.kind IN ('slow_compute', 'straggler') AND standing.subject_type <> 'job'
                AND standing.stands_still THEN 'stalls'
            WHEN standing.kind = 'straggler' AND standing.subject_type = 'job' THEN 'slow_job'
            WHEN standing.kind IN ('slow_compute', 'slow_nic', 'straggler') THEN 'slow_host'
            WHEN standing.kind IN ('degraded_switch', 'switch_level') THEN 'slow_switch'
            WHEN standing.kind IN ('degraded_link', 'congestion', 'link_flap') THEN 'slow_link'
            WHEN standing.kind IN ('cross_step', 'cross_group') THEN 'slow_job'
            WHEN standing.kind IN ('hang', 'stopped') THEN 'silent'
            ELSE standing.kind
        END AS family,
        CASE
            WHEN family IN ('slow_job', 'silent', 'stalls') THEN standing.job_id
            ELSE coalesce(standing.subject_host, standing.subject)
        END AS place,
        CASE WHEN standing.subject_type IN ('switch', 'link') THEN '' ELSE standing.job_id END AS tenant,
        CASE
            WHEN standing.kind IN ('cross_step', 'cross_group') THEN 2
            WHEN standing.kind IN ('straggler', 'switch_level') THEN 1
            ELSE 0
        END AS vagueness
    FROM standing
),

timed AS (  -- how many finished windows have told of the tenant so far
    SELECT
        placed.*,
        clock.finished,
        clock.finished_so_far - (
            SELECT count(*) FROM untold
            WHERE untold.job_id = placed.tenant AND untold.window_start_ns < placed.window_start_ns
        ) AS told_so_far
    FROM placed
    INNER JOIN clock ON placed.window_start_ns = clock.window_start_ns
),

begun AS (
    SELECT
        timed.* EXCLUDE (finished, told_so_far),
        told_so_far - finished - lag(told_so_far) OVER trouble < 2
        AND NOT coalesce(
            family = 'silent'
            AND start_ns > max(end_ns) OVER before
            AND subject_host <> last_value(subject_host IGNORE NULLS) OVER before,
            FALSE
        ) AS goes_on
    FROM timed
    WINDOW trouble AS (
        PARTITION BY family, place, tenant
        ORDER BY window_start_ns, start_ns, job_id, kind, subject_type, subject
    ),
    before AS (
        PARTITION BY family, place, tenant
        ORDER BY window_start_ns, start_ns, job_id, kind, subject_type, subject
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),

numbered AS (
    SELECT
        *,
        sum(CASE WHEN goes_on THEN 0 ELSE 1 END) OVER (
            PARTITION BY family, place, tenant
            ORDER BY window_start_ns, start_ns, job_id, kind, subject_type, subject
        ) AS number_of_incident
    FROM begun
),

named AS (  -- since when the incident has had this subject
    SELECT
        *,
        min(window_start_ns) OVER (
            PARTITION BY family, place, tenant, number_of_incident, kind, subject_type, subject
        ) AS named_since_ns
    FROM numbered
),

-- Tells of the incident: a known cause tells more than an unknown one, and that more than an effect; of a silence, which
-- is as bad in each window and longer in each, the surest, such as who was replaced once it ended, and then who was
-- named first of those that hang.
worst AS (
    SELECT
        family,
        place,
        tenant,
        number_of_incident,
        job_id,
        kind,
        subject_type,
        subject,
        subject_host,
        severity,
        score,
        confidence,
        explanation,
        evidence_sql,
        window_start_ns
    FROM named
    QUALIFY row_number() OVER (
        PARTITION BY family, place, tenant, number_of_incident
        ORDER BY
            vagueness,
            CASE WHEN family = 'silent' THEN confidence END DESC NULLS LAST,
            family = 'silent' AND kind = 'stopped',
            CASE WHEN family = 'silent' THEN named_since_ns END,
            severity DESC,
            window_start_ns,
            job_id,
            kind,
            subject_type,
            subject
    ) = 1
),

costs AS (  -- what several subjects cost a job in one window is the same loss
    SELECT
        family,
        place,
        tenant,
        number_of_incident,
        window_start_ns,
        job_id,
        max(lost_gpu_s) AS lost_gpu_s,
        max(recoverable_gpu_s) AS recoverable_gpu_s
    FROM numbered
    WHERE family <> 'silent'
    GROUP BY ALL
),

covered AS (  -- up to when the rows before this one cover a silence, of those that cost something
    SELECT
        numbered.*,
        jobs.endpoints,
        max(numbered.end_ns) OVER (
            PARTITION BY numbered.place, numbered.tenant, numbered.number_of_incident
            ORDER BY numbered.start_ns, numbered.window_start_ns, numbered.kind, numbered.subject_type, numbered.subject
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS covered_until_ns
    FROM numbered
    INNER JOIN jobs ON numbered.window_start_ns = jobs.window_start_ns AND numbered.job_id = jobs.job_id
    WHERE numbered.family = 'silent' AND numbered.lost_gpu_s IS NOT NULL
),

silent_costs AS (
    SELECT
        family,
        place,
        tenant,
        number_of_incident,
        sum(endpoints * greatest(end_ns - greatest(start_ns, coalesce(covered_until_ns, 0)), 0)) / 1e9 AS lost_gpu_s,
        bool_or(kind = 'hang') AS hung
    FROM covered
    GROUP BY ALL
),

sums AS (
    SELECT
        family,
        place,
        tenant,
        number_of_incident,
        sum(lost_gpu_s) AS lost_gpu_s,
        sum(recoverable_gpu_s) AS recoverable_gpu_s
    FROM costs
    GROUP BY ALL
    UNION ALL
    SELECT
        family,
        place,
        tenant,
        number_of_incident,
        lost_gpu_s,
        CASE WHEN hung THEN lost_gpu_s END AS recoverable_gpu_s
    FROM silent_costs
),

last_steps AS (
    SELECT
        job_id,
        max(end_ns) AS last_step_ns
    FROM steps
    WHERE
        addr IS NULL
        AND window_start_ns >= (SELECT min(window_start_ns) FROM placed WHERE family = 'silent')
    GROUP BY job_id
),

spans AS (
    SELECT
        family,
        place,
        tenant,
        number_of_incident,
        min(start_ns) AS start_ns,
        max(end_ns) AS last_seen_ns,
        min(window_start_ns) AS first_window_start_ns,
        max(window_start_ns) AS last_window_start_ns,
        count(DISTINCT window_start_ns) AS windows,
        max(severity) AS peak_severity,
        max(score) AS peak_score,
        list(DISTINCT kind ORDER BY kind) AS kinds,
        list(DISTINCT job_id ORDER BY job_id) AS jobs
    FROM numbered
    GROUP BY ALL
),

told AS (
    SELECT
        'incident-'
        || left(md5(concat_ws('|', spans.family, spans.place, spans.tenant, spans.first_window_start_ns)), 12)
            AS incident_id,
        spans.*,
        worst.* EXCLUDE (family, place, tenant, number_of_incident, window_start_ns, severity, score),
        worst.window_start_ns AS worst_window_start_ns,
        sums.lost_gpu_s,
        sums.recoverable_gpu_s,
        clock.finished_so_far,
        (SELECT max(finished_so_far) FROM clock) - clock.finished_so_far - (
            SELECT count(*) FROM untold
            WHERE untold.job_id = spans.tenant AND untold.window_start_ns > spans.last_window_start_ns
        ) >= 2
        OR (spans.family <> 'silent' AND EXISTS (
            SELECT 1 FROM diagnoses
            WHERE
                diagnoses.kind = 'stopped'
                AND list_contains(spans.jobs, diagnoses.job_id)
                AND diagnoses.window_start_ns >= spans.last_window_start_ns
        )) AS is_over,
        spans.family = 'silent' AND coalesce(last_steps.last_step_ns > spans.last_seen_ns, FALSE) AS went_on
    FROM spans
    INNER JOIN worst USING (family, place, tenant, number_of_incident)
    LEFT JOIN sums USING (family, place, tenant, number_of_incident)
    INNER JOIN clock ON spans.last_window_start_ns = clock.window_start_ns
    LEFT JOIN last_steps ON spans.place = last_steps.job_id
),

blamed AS (
    SELECT
        effect.incident_id,
        arg_max(cause.incident_id, (cause.peak_severity, cause.incident_id)) AS effect_of
    FROM told AS effect
    INNER JOIN told AS cause
        ON
            list_contains(cause.jobs, effect.job_id)
            AND effect.first_window_start_ns <= cause.last_window_start_ns
            AND cause.first_window_start_ns <= effect.last_window_start_ns
            AND effect.finished_so_far - cause.finished_so_far < 2
    WHERE effect.family = 'slow_job' AND cause.family <> 'slow_job'
    GROUP BY effect.incident_id
)

SELECT
    told.incident_id,
    CASE WHEN told.is_over THEN 'closed' ELSE 'open' END AS state,
    told.job_id,
    told.kind,
    told.subject_type,
    told.subject,
    told.subject_host AS host,
    make_timestamp(told.start_ns // 1000) AS started,
    make_timestamp(told.last_seen_ns // 1000) AS last_seen,
    CASE WHEN told.is_over THEN make_timestamp(told.last_seen_ns // 1000) END AS ended,
    told.windows,
    told.peak_severity,
    told.peak_score,
    told.confidence,
    told.lost_gpu_s,
    told.recoverable_gpu_s,
    told.explanation,  -- of the worst window, as are job, kind, subject, confidence and evidence
    told.evidence_sql,
    blamed.effect_of,  -- the incident that a slow job is only an effect of
    told.kinds,
    told.jobs,
    told.family,
    told.place,
    told.tenant,
    told.start_ns,
    told.last_seen_ns,
    CASE WHEN told.is_over THEN told.last_seen_ns END AS end_ns,
    told.first_window_start_ns,
    told.last_window_start_ns,
    told.worst_window_start_ns,
    told.went_on  -- whether steps have ended since, of a job that was silent
FROM told
LEFT JOIN blamed USING (incident_id);
