-- From version 14 to 15: the table mutes is new; it is created with the others.
DROP VIEW IF EXISTS muted_incidents;
