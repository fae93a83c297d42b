#!/bin/sh
# Makes the database of the DuckLake's catalog, its owner, and a role that only reads. PostgreSQL's image runs it once,
# when its volume is new; on another server, run it as a superuser with PGHOST and the like set.
set -eu
[ -n "${LLMPRISM_LAKE_PASSWORD:-}" ] || exit 0 # a warehouse in a file needs none of it

psql --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-postgres}" <<'SQL'
\getenv owner_password LLMPRISM_LAKE_PASSWORD
\getenv reader_password LLMPRISM_READER_PASSWORD
CREATE ROLE llmprism LOGIN PASSWORD :'owner_password';
CREATE DATABASE lake OWNER llmprism;
REVOKE ALL ON DATABASE lake FROM PUBLIC;
\connect lake
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT ALL ON SCHEMA public TO llmprism;
\if :{?reader_password}
SELECT :'reader_password' <> '' AS wanted \gset
\if :wanted
CREATE ROLE llmprism_reader LOGIN PASSWORD :'reader_password';
ALTER ROLE llmprism_reader SET default_transaction_read_only = on;
GRANT CONNECT ON DATABASE lake TO llmprism_reader;
GRANT USAGE ON SCHEMA public TO llmprism_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE llmprism IN SCHEMA public GRANT SELECT ON TABLES TO llmprism_reader;
\endif
\endif
SQL
