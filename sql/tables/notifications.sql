-- One row per message about an incident that opened or closed. A sent message stays: a rerun of its window adds rows.
-- Grain: window_start_ns, incident_id, change, told_ns.  From: incidents.
CREATE TABLE IF NOT EXISTS notifications (
    window_start_ns BIGINT NOT NULL,       -- the window the row belongs to
    incident_id VARCHAR NOT NULL,          -- the incident's id at that time
    change VARCHAR NOT NULL,               -- opened or closed
    told_ns BIGINT NOT NULL,               -- time of the claim; later messages have later times
    family VARCHAR NOT NULL,               -- the incident's family of kinds
    place VARCHAR NOT NULL,                -- the incident's place
    tenant VARCHAR NOT NULL,               -- the incident's job; empty for switches and links
    seen_window_start_ns BIGINT NOT NULL,  -- last window that showed the incident at that time
    outcome VARCHAR NOT NULL,              -- claimed (being sent), sent, refused (will be tried again) or unknown
    detail VARCHAR,                        -- why the message was not sent
    message VARCHAR NOT NULL               -- the message, as JSON text
);
