-- name: insert_plan
insert into plan (id, created_at, content) values (:id, :now, :content) returning *;

-- name: select_plan
select * from plan where id = :id;

-- name: select_plans
select * from plan order by created_at desc, id limit :limit;

-- name: select_plan_of_run
select * from plan where run_id = :run_id;

-- name: take_plan
update plan set run_id = :run_id where id = :id and run_id is null returning id;

-- name: record_machine
-- What is known of a machine of a pool, at each step of its life. What happened first stays.
insert into machine
select name, created_at, pool, coalesce(json_extract(facts, '$.size'), ''), coalesce(json_extract(facts, '$.region'), ''),
       case when json_type(facts, '$.spot') = 'true' then 1 else 0 end, usd_per_hour, kept_usd_per_hour, made_at, allocated_since,
       case when state = 'ready' then :now end, allocated_since, allocated_s, case when state = 'lost' then 1 else 0 end, gone_at
  from host where name = :name
on conflict (name, requested_at) do update
   set size = excluded.size, region = excluded.region, spot = excluded.spot, usd_per_hour = excluded.usd_per_hour,
       kept_usd_per_hour = excluded.kept_usd_per_hour, made_at = excluded.made_at,
       ran_from = coalesce(machine.ran_from, excluded.ran_from), ready_at = coalesce(machine.ready_at, excluded.ready_at),
       allocated_since = excluded.allocated_since, allocated_s = excluded.allocated_s,
       taken = max(machine.taken, excluded.taken), ended_at = excluded.ended_at;

-- name: select_machines
-- The newest ones. With what worked on them: the first claim and the last end of an attempt.
with newest as materialized (
    select * from machine where (:pool is null or pool = :pool) and requested_at >= :since order by requested_at desc limit :limit
), used as materialized (
    select a.host, a.run_id, min(a.claimed_at) as first_at, max(a.ended_at) as last_at
      from run r cross join attempt a on a.run_id = r.id
     where r.created_at >= (select min(requested_at) from newest) - 86400 group by a.host, a.run_id
)
select m.*, min(u.first_at) as first_at, max(u.last_at) as last_at, min(u.run_id) as run_id
  from newest m left join used u on u.host = m.name and u.first_at >= m.requested_at
   and u.first_at <= coalesce(m.ended_at, u.first_at)
 group by m.name, m.requested_at order by m.name, m.requested_at;

-- name: select_task_history
-- What the keys took in earlier runs: the newest verdicts. `same`: of a run of that name.
select h.key, h.domain, h.run_id, case when r.name = :name then 1 else 0 end as same, a.ended_at - a.claimed_at as worker_s,
       (select total(b.reported_usd) from attempt b where b.run_id = h.run_id and b.task_number = h.number) as reported_usd
  from json_each(:keys) k cross join task h indexed by task_history on h.key = k.value and h.state = 'done'
  join run r on r.id = h.run_id
  join attempt a on a.run_id = h.run_id and a.task_number = h.number and a.number = h.decided_by
 where a.ended_at > a.claimed_at and a.claimed_at > 0
 order by r.created_at desc limit :limit;

-- name: sum_run_history
-- Of one run: when it lasted, its attempts, and the bytes that it brought home.
select max(r.started_at) as started_at, max(r.ended_at) as ended_at, count(a.number) as attempts,
       count(case when a.outcome not in ('ok', 'cancelled', 'preempted', 'lost') then 1 end) as failed,
       total(case when a.outcome not in ('ok', 'cancelled', 'preempted', 'lost') then a.ended_at - a.claimed_at end) as failed_s,
       max(case when a.outcome = 'ok' then a.ended_at end) as last_verdict_at
  from run r left join attempt a on a.run_id = r.id where r.id = :run_id;

-- name: select_worker_times
select worker, claimed_at, ended_at from attempt where run_id = :run_id and ended_at is not null order by worker, claimed_at;

-- name: sum_collected
-- Bytes of the files that came home, and of how many attempts.
select total((select total(value ->> '$.size') from json_each(e.data, '$.artifacts'))) as bytes, count(*) as attempts
  from event e where e.run_id = :run_id and e.type = 'attempt.collected';
