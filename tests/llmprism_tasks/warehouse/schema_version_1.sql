-- A warehouse of version 1, in which a job's layout was tp, pp and dp: one job of two NICs, one of them slow.
CREATE TABLE schema_version (version INTEGER NOT NULL, views VARCHAR NOT NULL);
INSERT INTO schema_version VALUES (1, '');
CREATE TABLE jobs (
    window_start_ns BIGINT NOT NULL, job_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, endpoints INTEGER NOT NULL,
    hosts INTEGER NOT NULL, tp INTEGER, pp INTEGER, dp INTEGER, confidence DOUBLE NOT NULL
);
CREATE TABLE job_members (
    window_start_ns BIGINT NOT NULL, job_id VARCHAR NOT NULL, addr VARCHAR NOT NULL, host VARCHAR NOT NULL
);
CREATE TABLE diagnoses (
    window_start_ns BIGINT NOT NULL, job_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, subject_type VARCHAR NOT NULL,
    subject VARCHAR NOT NULL, start_ns BIGINT NOT NULL, end_ns BIGINT NOT NULL, score DOUBLE NOT NULL,
    severity DOUBLE NOT NULL, explanation VARCHAR NOT NULL
);
CREATE VIEW troubles AS SELECT job_id, kind FROM diagnoses;
INSERT INTO diagnoses VALUES (0, 'j', 'straggler', 'addr', 'a', 1, 2, 9.0, 0.3, 'It is slow.');
INSERT INTO jobs VALUES (0, 'j', 'training', 2, 2, 1, 1, 2, 1.0);
INSERT INTO job_members VALUES (0, 'j', 'a', 'h'), (0, 'j', 'b', 'i');
