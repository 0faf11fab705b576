-- name: insert_pool
insert into pool (name, backend, settings, created_at) values (:name, :backend, :settings, :now)
on conflict (name) do nothing
returning *;

-- name: replace_pool
update pool set backend = :backend, settings = :settings where name = :name returning *;

-- name: select_pool
select * from pool where name = :name;

-- name: select_pools
select * from pool order by name;

-- name: delete_pool
delete from pool where name = :name returning name;

-- name: select_runs_of_pool
-- Those that still want it.
select * from run
 where state in ('queued', 'running', 'paused') and json_extract(policy, '$.pool') = :name
 order by created_at;

-- name: select_host_loads
-- What is leased on each host now, by whichever run.
select host, count(*) as attempts
  from attempt
 where state in ('leased', 'starting', 'running')
 group by host;
