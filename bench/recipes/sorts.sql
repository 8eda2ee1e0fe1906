-- Sorts, hashes and arrays within work_mem, and a rest after each, in one backend.
-- SPDX-License-Identifier: MIT
set work_mem = '96MB';
select count(*), md5(string_agg(m, '' order by m desc)) from (select md5(i::text) m from generate_series(1, 150000) i) t;
select pg_sleep(0.3);
select count(*), sum(n) from (select md5((i % 40000)::text) k, count(*) n from generate_series(1, 250000) i group by 1) t;
select pg_sleep(0.3);
select count(*), sum(cardinality(a)) from
  (select k, array_agg(m order by m) a from
    (select i % 500 k, repeat(md5(i::text), 1 + i % 5) m from generate_series(1, 120000) i) t group by k) u;
select pg_sleep(0.6);
