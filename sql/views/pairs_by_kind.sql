-- One row per job, window and kind of pair: how many pairs there are and what they carried.
-- Grain: window_start_ns, job_id, kind.  From: pairs.  Confidence as ratio, 0 to 1.
CREATE OR REPLACE VIEW pairs_by_kind AS
SELECT
    make_timestamp(window_start_ns // 1000) AS window_start,
    job_id,
    kind,
    count(*) AS pairs,
    sum(flows)::BIGINT AS flows,
    sum(bytes)::BIGINT AS bytes,
    median(distinct_sizes) AS median_distinct_sizes,
    min(confidence) AS least_confidence,
    avg(confidence) AS mean_confidence,
    window_start_ns
FROM pairs
GROUP BY window_start_ns, job_id, kind;
