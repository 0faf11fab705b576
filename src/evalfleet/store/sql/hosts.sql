-- name: take_pool
update pool set owner = :owner, epoch = epoch + 1 where name = :name returning *;

-- name: leave_pool
update pool set owner = null where name = :name and epoch = :epoch returning name;

-- name: amend_pool
update pool set settings = :settings where name = :name returning *;

-- name: explain_pool
update pool set reason = :reason where name = :name and coalesce(reason, '') <> coalesce(:reason, '') returning *;

-- name: mark_pool_for_deletion
update pool set deleting = 1 where name = :name and deleting = 0 returning *;

-- name: select_hosts
select * from host where pool = :pool and (:gone = 1 or state <> 'gone') order by number;

-- name: select_host_names
select name from host
union
select distinct host from attempt where state <> 'ended';

-- name: next_host_number
select coalesce(max(number), 0) + 1 as number from host where pool = :pool;

-- name: insert_host
-- A pool that is being deleted gets no more: such a machine would never be asked to go.
insert into host (name, pool, number, desired, state, facts, created_at, updated_at)
select :name, pool.name, :number, 'running', 'requested', :facts, :now, :now from pool where pool.name = :pool and pool.deleting = 0
returning *;

-- name: set_desired
-- A machine that is to go stays so: for another one, request a new host. `forced` may be added later.
update host set desired = :desired, forced = :forced, updated_at = :now
 where name = :name and state <> 'gone'
   and ((desired <> :desired and desired <> 'gone') or (desired = :desired and :forced = 1 and forced = 0))
returning *;

-- name: move_host
update host
   set state = :state, reason = :reason, readiness_check = :readiness_check, facts = :facts, usd_per_hour = :usd_per_hour,
       kept_usd_per_hour = :kept_usd_per_hour, made_at = :made_at, allocated_since = :allocated_since,
       allocated_s = :allocated_s, updated_at = :now, gone_at = case when :state = 'gone' then :now end
 where name = :name and state = :was
   and (:was = :state or (:was, :state) in (values
        ('requested', 'creating'), ('requested', 'gone'),
        ('creating', 'preparing'), ('creating', 'draining'), ('creating', 'stopped'), ('creating', 'lost'), ('creating', 'gone'),
        ('preparing', 'ready'), ('preparing', 'quarantined'), ('preparing', 'creating'), ('preparing', 'draining'),
        ('preparing', 'stopped'), ('preparing', 'lost'), ('preparing', 'gone'),
        ('ready', 'quarantined'), ('ready', 'draining'), ('ready', 'stopped'), ('ready', 'lost'), ('ready', 'gone'),
        ('quarantined', 'preparing'), ('quarantined', 'draining'), ('quarantined', 'stopped'), ('quarantined', 'lost'),
        ('quarantined', 'gone'),
        ('draining', 'preparing'), ('draining', 'stopped'), ('draining', 'lost'), ('draining', 'gone'),
        ('stopped', 'preparing'), ('stopped', 'draining'), ('stopped', 'lost'), ('stopped', 'gone'),
        ('lost', 'gone')))
   and exists (select 1 from pool where pool.name = host.pool and pool.epoch = :epoch)
returning *;

-- name: select_pool_tallies
-- Of the runs that use the pool, since it was made.
select count(*) as total, count(*) filter (where task.state = 'done') as completed,
       count(*) filter (where task.state in ('failed', 'held')) as failed
  from run join task on task.run_id = run.id
 where json_extract(run.policy, '$.pool') = :pool and run.created_at >= :since;

-- name: select_host_keys
-- The tasks that each host was given since the pool was made, and whether one of its attempts gave the verdict.
select attempt.host as host, task.key as key, max(case when attempt.outcome = 'ok' then 1 else 0 end) as completed, min(attempt.claimed_at) as at
  from run
  join attempt on attempt.run_id = run.id
  join task on task.run_id = attempt.run_id and task.number = attempt.task_number
 where json_extract(run.policy, '$.pool') = :pool and run.created_at >= :since
 group by attempt.host, task.key order by at, key;

-- name: select_host_tallies
select attempt.host as host, count(*) as assigned, count(*) filter (where attempt.outcome = 'ok') as completed,
       max(case when attempt.outcome is null then task.key end) as current,
       sum(max(0, coalesce(attempt.ended_at, :now) - attempt.claimed_at)) as busy_s
  from run
  join attempt on attempt.run_id = run.id
  join task on task.run_id = attempt.run_id and task.number = attempt.task_number
 where json_extract(run.policy, '$.pool') = :pool and run.created_at >= :since
 group by attempt.host;

-- name: select_container_tallies
select attempt.host as host, json_extract(attempt.metrics, '$.container') as container, count(*) as completed
  from run
  join attempt on attempt.run_id = run.id
 where json_extract(run.policy, '$.pool') = :pool and run.created_at >= :since
   and attempt.outcome = 'ok' and json_extract(attempt.metrics, '$.container') is not null
 group by 1, 2;
