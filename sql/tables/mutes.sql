-- One row per mute of an incident. A mute stays when it is over: it tells who silenced what, until when, and why.
-- Grain: window_start_ns, incident_id, muted_ns.  From: `llmprism mute`, the button on an incident's page.
CREATE TABLE IF NOT EXISTS mutes (
    window_start_ns BIGINT NOT NULL,  -- the last window that showed the incident when it was muted
    incident_id VARCHAR NOT NULL,     -- the incident's id at that time
    muted_ns BIGINT NOT NULL,         -- time of the mute
    until_ns BIGINT NOT NULL,         -- until when no message is sent, exclusive
    reason VARCHAR NOT NULL,          -- why, as the person who muted it wrote
    muted_by VARCHAR,                 -- who muted it; NULL if not known
    family VARCHAR NOT NULL,          -- the incident's family of kinds
    place VARCHAR NOT NULL,           -- the incident's place
    tenant VARCHAR NOT NULL           -- the incident's job; empty for switches and links
);
