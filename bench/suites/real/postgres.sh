#!/bin/sh
# PostgreSQL under a fixed load. `postgres.sh setup DIRECTORY` makes a database cluster. `postgres.sh run DIRECTORY
# [SQL]` becomes the server, whose processes are its children. The clients are not its children and run without the
# preloaded allocator: pgbench, whose throughput is printed, and queries that sort, group and aggregate, whose results
# are printed; or one client with the queries of the file SQL. The server refuses to run as root; then it runs as
# nobody, who must be able to read the preloaded library.
# SPDX-License-Identifier: MIT
set -eu
data=$2
bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -1)
as=
[ "$(id -u)" -ne 0 ] || as='setpriv --reuid=nobody --regid=nogroup --clear-groups'

query() {
  "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$data" -U postgres postgres
}

drive() {
  for _ in $(seq 600); do # a minute
    "$bin/pg_isready" -q -h "$data" && break
    sleep 0.1
  done
  if [ -n "$2" ]; then
    query <"$2"
    kill -INT "$1"
    return
  fi
  "$bin/pgbench" -i -q -s 1 -h "$data" -U postgres postgres >/dev/null 2>&1
  "$bin/pgbench" -c 4 -t 600 -h "$data" -U postgres postgres 2>&1 | grep -E '^(tps|number of transactions)'
  query <<'SQL'
create temp table t as select i, i % 1000 as k, md5(i::text) as m, repeat(md5((i * 7)::text), 1 + i % 20) as body
  from generate_series(1, 60000) i;
set work_mem = '64MB';
select k, count(*), sum(length(body)), max(m) from t group by k order by 3 desc, 1 limit 3;
select count(*), md5(string_agg(m, ',' order by m desc)) from t where body ~ 'a[0-9]{3}f';
select md5(string_agg(x::text, '' order by i)) from
  (select i, jsonb_build_object('id', i, 'tags', array_agg(m) over (partition by k order by i)) x
   from t where k < 200) s;
SQL
  kill -INT "$1"
}

if [ "$1" = setup ]; then
  rm -rf "$data"
  mkdir "$data"
  [ -z "$as" ] || chown nobody:nogroup "$data"
  $as "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --no-locale --no-sync >/dev/null
  exit
fi
(unset LD_PRELOAD && drive $$ "${3-}" &)
# shellcheck disable=SC2086 # words
exec $as "$bin/postgres" -D "$data" -k "$data" -c listen_addresses= -c fsync=off -c shared_buffers=16MB \
  -c autovacuum=off -c log_min_messages=panic -c max_parallel_workers=0
