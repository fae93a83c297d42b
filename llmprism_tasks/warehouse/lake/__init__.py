"""DuckLakes: tables as Parquet files in a folder, and a catalog of them in a file or in PostgreSQL.

A catalog in a file admits one process at a time. A catalog in PostgreSQL is for several machines: readers and writers
of any host work at the same time, and writers wait for one another by a lock that PostgreSQL holds.
"""
