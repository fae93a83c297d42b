-- The incidents of the diagnoses from the window `since_ns` on, as the view `incidents` describes them. All of them are
-- found from 0 on; from a later window on those that begin there are right only if no incident reaches over it, which
-- `first_touched` sees to. `stored.incidents` keeps them.
-- Grain: incident_id.  From: diagnoses, windows, jobs, job_members, steps, aside_jobs.
WITH clock AS (  -- number of finished windows so far
    SELECT
        window_start_ns,
        (status = 'done' AND rows_landed > 0)::INTEGER AS finished,
        sum(finished) OVER (ORDER BY window_start_ns) AS finished_so_far
    FROM windows
    WHERE window_start_ns >= $since_ns
),

untold AS (  -- finished windows in which a job was set aside
    SELECT
        aside_jobs.job_id,
        aside_jobs.window_start_ns
    FROM aside_jobs
    INNER JOIN clock ON aside_jobs.window_start_ns = clock.window_start_ns
    WHERE clock.finished = 1 AND aside_jobs.window_start_ns >= $since_ns
),

named_nics AS (
    SELECT DISTINCT
        window_start_ns,
        job_id,
        subject AS addr
    FROM diagnoses
    WHERE subject_type = 'addr' AND window_start_ns >= $since_ns
),

nic_hosts AS (  -- an inner join of few with many: DuckDB then reads only the windows of the few
    SELECT
        job_members.window_start_ns,
        job_members.job_id,
        job_members.addr,
        job_members.host
    FROM job_members
    INNER JOIN named_nics USING (window_start_ns, job_id, addr)
),

located AS (
    SELECT
        diagnoses.*,
        CASE diagnoses.subject_type WHEN 'host' THEN diagnoses.subject ELSE nic_hosts.host END AS subject_host,
        clock.finished_so_far - clock.finished AS finished_before,
        clock.finished_so_far
    FROM diagnoses
    INNER JOIN clock ON diagnoses.window_start_ns = clock.window_start_ns
    LEFT JOIN nic_hosts
        ON
            diagnoses.subject_type = 'addr'
            AND diagnoses.window_start_ns = nic_hosts.window_start_ns
            AND diagnoses.job_id = nic_hosts.job_id
            AND diagnoses.subject = nic_hosts.addr
),

standing AS (  -- subjects that, or whose jobs, are known to stall in a neighbouring window
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
            WHEN
                standing.kind IN ('straggler', 'slow_network', 'slow_compute')
                AND standing.subject_type = 'job' THEN 'slow_job'
            WHEN standing.kind IN ('slow_compute', 'slow_nic', 'straggler') THEN 'slow_host'
            WHEN standing.kind = 'slow_network' AND standing.subject_type = 'addr' THEN 'slow_host'
            WHEN standing.kind = 'slow_network' AND standing.subject_type = 'link' THEN 'slow_link'
            WHEN standing.kind IN ('degraded_switch', 'switch_level', 'slow_network') THEN 'slow_switch'
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
            WHEN standing.kind IN ('straggler', 'switch_level', 'slow_network') THEN 1
            ELSE 0
        END AS vagueness
    FROM standing
),

timed AS (  -- number of finished windows with results of the tenant so far
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

named AS (  -- first window in which the incident had this subject
    SELECT
        *,
        min(window_start_ns) OVER (
            PARTITION BY family, place, tenant, number_of_incident, kind, subject_type, subject
        ) AS named_since_ns
    FROM numbered
),

-- The diagnosis that describes the incident: a known cause before an unknown one, and that before an effect. All
-- windows of a silence are equally bad, so for a silence it is the diagnosis with the highest confidence (such as a NIC
-- that was replaced afterwards), and then the hanging subject that was named first.
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
        candidates,
        odds,
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

costs AS (  -- several subjects of a job in one window share one loss
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

covered AS (  -- end of the time that earlier rows of a silence cover, for rows with a cost
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
        CASE WHEN count(steps) = count(*) THEN sum(steps)::INTEGER END AS single_steps,
        list(DISTINCT kind ORDER BY kind) AS kinds,
        list(DISTINCT job_id ORDER BY job_id) AS jobs
    FROM numbered
    GROUP BY ALL
),

following AS (  -- the first windows in which a silent job is seen since: if it goes on, it has ended a step in them
    SELECT
        spans.place AS job_id,
        spans.tenant,
        spans.number_of_incident,
        jobs.window_start_ns
    FROM spans
    INNER JOIN jobs ON spans.place = jobs.job_id AND spans.last_window_start_ns <= jobs.window_start_ns
    WHERE spans.family = 'silent'
    QUALIFY row_number() OVER (
        PARTITION BY spans.place, spans.tenant, spans.number_of_incident ORDER BY jobs.window_start_ns
    ) <= 10
),

last_steps AS (
    SELECT
        following.job_id,
        following.tenant,
        following.number_of_incident,
        max(steps.end_ns) AS last_step_ns
    FROM steps
    INNER JOIN following USING (window_start_ns, job_id)
    WHERE steps.addr IS NULL
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
    LEFT JOIN last_steps
        ON
            spans.family = 'silent'
            AND spans.place = last_steps.job_id
            AND spans.tenant = last_steps.tenant
            AND spans.number_of_incident = last_steps.number_of_incident
),

blamed AS (
    SELECT
        effect.incident_id,
        arg_max(cause.incident_id, (cause.peak_severity, cause.incident_id)) AS effect_of
    FROM told AS effect
    INNER JOIN told AS cause
        ON
            list_contains(cause.jobs, effect.job_id)
            AND (
                effect.first_window_start_ns <= cause.last_window_start_ns
                -- or the job is slow on, in a window in which the flows did not name the cause
                OR effect.start_ns <= cause.last_seen_ns
            )
            AND cause.first_window_start_ns <= effect.last_window_start_ns
            AND effect.finished_so_far - cause.finished_so_far < 2
    WHERE effect.family = 'slow_job' AND cause.family NOT IN ('slow_job', 'latent', 'ended')
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
    told.explanation,  -- like job, kind, subject, confidence and evidence, of the describing diagnosis
    told.evidence_sql,
    blamed.effect_of,  -- the incident that causes this slow job
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
    told.single_steps,  -- slow steps, if it is about single ones; NULL for a fault that lasts
    told.candidates,  -- what the describing diagnosis cannot tell apart, the likeliest first
    told.odds,  -- probabilities of the candidates
    told.went_on,  -- whether a silent job has ended steps since
    coalesce(list_contains(proven.expired, 'flows'), FALSE) AS evidence_expired  -- whether the flows behind it are gone
FROM told
LEFT JOIN blamed USING (incident_id)
LEFT JOIN windows AS proven ON told.worst_window_start_ns = proven.window_start_ns;
