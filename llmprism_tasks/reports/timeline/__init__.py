"""A job's timeline as lanes, one for each NIC and kind, and the files that other tools read it from."""
