-- One row per job and window: how the time of its NICs' steps is divided, and which NIC the others waited for most.
-- Grain: window_start_ns, job_id.  From: step_breakdown.  Seconds are means per NIC and step, ratios 0 to 1.
CREATE OR REPLACE VIEW step_split_by_job AS
WITH sums AS (
    SELECT
        window_start_ns,
        job_id,
        count(*) AS member_steps,
        sum(step_ns) / 1e9 AS step_s,
        sum(compute_ns) / 1e9 AS compute_s,
        sum(communication_ns) / 1e9 AS communication_s,
        sum(bubble_ns) / 1e9 AS bubble_s,
        sum(waiting_ns) / 1e9 AS waiting_s,
        sum(unexplained_ns) / 1e9 AS unexplained_s
    FROM step_breakdown
    GROUP BY window_start_ns, job_id
),

waited_for AS (
    SELECT
        window_start_ns,
        job_id,
        waiting_for,
        sum(waiting_ns) AS waited_ns
    FROM step_breakdown
    WHERE waiting_for IS NOT NULL
    GROUP BY window_start_ns, job_id, waiting_for
),

longest AS (
    SELECT
        window_start_ns,
        job_id,
        arg_max(waiting_for, row(waited_ns, waiting_for)) AS most_waited_for,
        max(waited_ns) / sum(waited_ns) AS most_waited_for_ratio
    FROM waited_for
    GROUP BY window_start_ns, job_id
)

SELECT
    make_timestamp(sums.window_start_ns // 1000) AS window_start,
    sums.job_id,
    sums.step_s / sums.member_steps AS step_s,
    sums.compute_s / sums.member_steps AS compute_s,
    sums.communication_s / sums.member_steps AS communication_s,
    sums.bubble_s / sums.member_steps AS bubble_s,
    sums.waiting_s / sums.member_steps AS waiting_s,
    sums.unexplained_s / sums.member_steps AS unexplained_s,
    sums.compute_s / sums.step_s AS compute_ratio,
    sums.communication_s / sums.step_s AS communication_ratio,
    sums.bubble_s / sums.step_s AS bubble_ratio,
    sums.waiting_s / sums.step_s AS waiting_ratio,
    sums.unexplained_s / sums.step_s AS unexplained_ratio,
    longest.most_waited_for,        -- the NIC at the source of most of the waiting
    longest.most_waited_for_ratio,  -- share of all waiting that falls on members that waited for this NIC longest
    sums.window_start_ns
FROM sums
LEFT JOIN longest
    ON sums.window_start_ns = longest.window_start_ns AND sums.job_id = longest.job_id;
