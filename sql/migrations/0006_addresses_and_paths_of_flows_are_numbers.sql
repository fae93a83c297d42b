-- From version 5 to 6: flows are a view of a table whose texts are numbers; their rows move there.
-- Some files of earlier versions hold only a part of the tables.
CREATE TABLE IF NOT EXISTS flows (
    window_start_ns BIGINT,
    flow_start_ns BIGINT,
    flow_end_ns BIGINT,
    src_addr VARCHAR,
    dst_addr VARCHAR,
    src_port INTEGER,
    dst_port INTEGER,
    protocol INTEGER,
    bytes BIGINT,
    packets BIGINT,
    switch_path VARCHAR[]
);
CREATE SCHEMA stored;
CREATE TABLE stored.names (number INTEGER NOT NULL, value VARCHAR NOT NULL);
CREATE TABLE stored.paths (number INTEGER NOT NULL, value VARCHAR[] NOT NULL);
INSERT INTO stored.names
SELECT row_number() OVER (ORDER BY value) - 1, value
FROM (
    SELECT '' AS value
    UNION
    SELECT src_addr FROM flows
    UNION
    SELECT dst_addr FROM flows
)
WHERE value IS NOT NULL;
INSERT INTO stored.paths
SELECT row_number() OVER (ORDER BY value) - 1, value
FROM (
    SELECT []::VARCHAR[] AS value
    UNION
    SELECT switch_path FROM flows
)
WHERE value IS NOT NULL;
CREATE TABLE stored.flows (
    window_start_ns BIGINT NOT NULL,
    flow_start_ns BIGINT NOT NULL,
    flow_end_ns BIGINT NOT NULL,
    src_addr INTEGER NOT NULL,
    dst_addr INTEGER NOT NULL,
    src_port INTEGER,
    dst_port INTEGER,
    protocol INTEGER,
    bytes BIGINT NOT NULL,
    packets BIGINT,
    switch_path INTEGER
);
INSERT INTO stored.flows
SELECT
    flows.window_start_ns,
    flows.flow_start_ns,
    flows.flow_end_ns,
    source.number,
    destination.number,
    flows.src_port,
    flows.dst_port,
    flows.protocol,
    flows.bytes,
    flows.packets,
    path.number
FROM flows
INNER JOIN stored.names AS source ON flows.src_addr = source.value
INNER JOIN stored.names AS destination ON flows.dst_addr = destination.value
LEFT JOIN stored.paths AS path ON flows.switch_path = path.value
ORDER BY flows.rowid;
DROP TABLE flows;
