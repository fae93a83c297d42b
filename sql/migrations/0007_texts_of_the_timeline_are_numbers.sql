-- From version 6 to 7: the timeline is a view of a table whose texts are numbers; its rows move there.
-- Some files of earlier versions hold only a part of the tables.
CREATE TABLE IF NOT EXISTS timeline (
    window_start_ns BIGINT,
    job_id VARCHAR,
    addr VARCHAR,
    start_ns BIGINT,
    end_ns BIGINT,
    phase VARCHAR,
    peer VARCHAR,
    bytes BIGINT,
    step_index INTEGER
);
CREATE TABLE stored.nics (number INTEGER NOT NULL, value STRUCT(job_id VARCHAR, addr VARCHAR) NOT NULL);
CREATE TABLE stored.acts (number INTEGER NOT NULL, value STRUCT(phase VARCHAR, peer VARCHAR) NOT NULL);
INSERT INTO stored.nics
SELECT row_number() OVER (ORDER BY job_id, addr) - 1, {'job_id': job_id, 'addr': addr}
FROM (
    SELECT '' AS job_id, '' AS addr
    UNION
    SELECT job_id, addr FROM timeline
);
INSERT INTO stored.acts
SELECT row_number() OVER (ORDER BY phase, peer) - 1, {'phase': phase, 'peer': peer}
FROM (
    SELECT '' AS phase, '' AS peer
    UNION
    SELECT phase, peer FROM timeline
);
CREATE TABLE stored.timeline (
    window_start_ns BIGINT NOT NULL,
    nic INTEGER NOT NULL,
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    act INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    step_index INTEGER NOT NULL
);
INSERT INTO stored.timeline
SELECT
    timeline.window_start_ns,
    nic.number,
    timeline.start_ns,
    timeline.end_ns,
    act.number,
    timeline.bytes,
    timeline.step_index
FROM timeline
INNER JOIN stored.nics AS nic ON timeline.job_id = nic.value.job_id AND timeline.addr = nic.value.addr
INNER JOIN stored.acts AS act ON timeline.phase = act.value.phase AND timeline.peer IS NOT DISTINCT FROM act.value.peer
ORDER BY timeline.rowid;
DROP TABLE timeline;
