-- Store the found incidents that are not stored yet.
INSERT INTO stored.incidents BY NAME
FROM found_incidents EXCEPT FROM stored.incidents;
