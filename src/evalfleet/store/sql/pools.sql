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
-- What all runs lease on each host now.
select host, count(*) as attempts
  from attempt
 where state in ('leased', 'starting', 'running')
 group by host;

-- name: select_host_work
-- What each host has of any run: attempts that are live there, and those whose files are not collected yet.
select attempt.host as host, attempt.run_id as run_id, task.key as key, attempt.state as state
  from attempt indexed by attempt_unended
  join task on task.run_id = attempt.run_id and task.number = attempt.task_number
 where attempt.state <> 'ended'
 order by attempt.run_id, attempt.task_number, attempt.number;

-- name: select_pool_demand
-- Of each run that goes on and uses the pool: how many workers it asked for, and what it has and waits for.
select run.id as run_id, run.open as open, cast(json_extract(run.policy, '$.workers') as integer) as workers,
       (select count(*) from attempt where attempt.run_id = run.id and attempt.state in ('leased', 'starting', 'running')) as live,
       (select count(*) from task where task.run_id = run.id and task.state = 'queued') as queued
  from run
 where run.state = 'running' and json_extract(run.policy, '$.pool') = :pool
 order by run.rowid;
