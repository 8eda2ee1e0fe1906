-- A table filled, indexed, joined with itself, grouped, updated and thinned out, all in memory.
-- SPDX-License-Identifier: MIT
create table item (id integer primary key, text text, price real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
  insert into item select i, hex(zeroblob(i % 40)) || (i * 7919 % 10007), i * 1.5 from n;
create index item_text on item (text);
select count(*), max(length(text)) from item x
  where exists (select 1 from item y where y.id = x.id + 7 and y.text < x.text);
select substr(text, -2) k, count(*), avg(price), length(group_concat(id)) from item
  group by k order by 2 desc, 1 limit 5;
update item set text = text || 'x' where id % 3 = 0;
delete from item where id % 5 = 0;
select count(*) from item where text like '%99%';
