-- One row per window and job that was set aside: its rows broke critical expectations and were withheld.
-- Grain: window_start_ns, job_id.  From: validation_results.
CREATE OR REPLACE VIEW aside_jobs AS
WITH refused AS (
    SELECT
        window_start_ns,
        expectation,
        unnest(map_entries(
            CASE WHEN json_valid(observed) THEN json_extract(observed, '$.set_aside')::MAP (VARCHAR, BIGINT) END
        )) AS job
    FROM validation_results
    WHERE NOT success
)

SELECT
    make_timestamp(window_start_ns // 1000) AS window_start,
    job.key AS job_id,
    list(expectation ORDER BY expectation) AS expectations,
    sum(job.value)::BIGINT AS unexpected_rows,
    window_start_ns
FROM refused
GROUP BY window_start_ns, job.key;
