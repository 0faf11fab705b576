-- name: release_gpus
update gpu
   set released_at = :now,
       facts = (case when :programs = 1 then facts::jsonb || '{"foreign": [], "held": null, "unexplained_mb": null}'
                     else facts::jsonb || '{"held": null, "unexplained_mb": null}' end)::text
 where (host, uuid) in (select host, uuid from gpu_lease where holder = :holder);

-- name: sum_failures
-- Per kind and blame: attempts, tasks, and the latest one as an example.
select a.kind, a.blame, count(*) as count, count(distinct a.task_number) as tasks, max(a.ended_at) as ended_at,
       (array_agg(a.evidence order by a.ended_at desc nulls last))[1] as evidence,
       (array_agg(t.key order by a.ended_at desc nulls last))[1] as key
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.kind is not null
 group by a.kind, a.blame order by count desc, a.kind, a.blame;

-- name: select_payloads
select key, json_part(spec, '$.payload')::text as payload from task where run_id = :run_id order by number;

-- name: select_episodes
select key, json_extract(spec, '$.payload.benchmark') as benchmark, json_extract(spec, '$.payload.task') as task,
       json_part(spec, '$.payload.seed') as seed, json_part(spec, '$.payload.max_steps') as max_steps
  from task
 where run_id = :run_id and json_type(spec, '$.payload.task') = 'text'
   and exists (select 1 from task where run_id = :run_id and number = 1 and json_type(spec, '$.payload.benchmark') = 'text')
 order by number;

-- name: select_machines
-- The newest ones. With what worked on them: the first claim and the last end of an attempt.
with newest as materialized (
    select * from machine where (:pool is null or pool = :pool) and requested_at >= :since order by requested_at desc limit :limit
), used as materialized (
    select a.host, a.run_id, min(a.claimed_at) as first_at, max(a.ended_at) as last_at
      from run r join attempt a on a.run_id = r.id
     where r.created_at >= (select min(requested_at) from newest) - 86400 group by a.host, a.run_id
)
select m.*, w.first_at, w.last_at, w.run_id
  from newest m cross join lateral (
    select min(u.first_at) as first_at, max(u.last_at) as last_at, min(u.run_id) as run_id from used u
     where u.host = m.name and u.first_at >= m.requested_at and u.first_at <= coalesce(m.ended_at, u.first_at)
  ) w
 order by m.name, m.requested_at;

-- name: sum_collected
-- Bytes of the files that came home, and of how many attempts.
select total((select total((one ->> 'size')::double precision) from json_array_elements(json_part(e.data, '$.artifacts')) one)) as bytes,
       count(*) as attempts
  from event e where e.run_id = :run_id and e.type = 'attempt.collected';
