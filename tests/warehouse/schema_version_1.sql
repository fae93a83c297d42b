-- A warehouse of version 1, in which a job's layout was tp, pp and dp: one job of two NICs.
CREATE TABLE schema_version (version INTEGER NOT NULL, views VARCHAR NOT NULL);
INSERT INTO schema_version VALUES (1, '');
CREATE TABLE jobs (
    window_start_ns BIGINT NOT NULL, job_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, endpoints INTEGER NOT NULL,
    hosts INTEGER NOT NULL, tp INTEGER, pp INTEGER, dp INTEGER, confidence DOUBLE NOT NULL
);
CREATE TABLE job_members (
    window_start_ns BIGINT NOT NULL, job_id VARCHAR NOT NULL, addr VARCHAR NOT NULL, host VARCHAR NOT NULL
);
INSERT INTO jobs VALUES (0, 'j', 'training', 2, 2, 1, 1, 2, 1.0);
INSERT INTO job_members VALUES (0, 'j', 'a', 'h'), (0, 'j', 'b', 'i');
