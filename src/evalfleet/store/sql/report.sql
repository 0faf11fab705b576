-- name: sum_tasks
-- All that scores need, small even for a long run. `retried`: whether the task took more than one attempt.
select domain, state, case when attempts > 1 then 1 else 0 end as retried, count(*) as count, total(score) as score, total(success) as successes,
       total(duration_s) as duration_s, count(duration_s) as timed, count(*) filter (where attempts = 0) as untried
  from task where run_id = :run_id group by domain, state, retried order by domain;

-- name: sum_states
select state, count(*) as count, total(score) as score, total(success) as successes
  from task where run_id = :run_id group by state;

-- name: sum_cost
-- Money so far; of a live attempt that is its worker's time until now, and what its task reported.
select total(case when outcome is null
                  then reported_usd + price_usd_per_hour * max(0, :now - coalesce(started_at, claimed_at)) / 3600.0
                  else cost_usd end) as cost_usd
  from attempt where run_id = :run_id;

-- name: sum_idle
-- Money for workers between their attempts: from the first claim of this run on each until its last end there, without the time that
-- attempts of any run had it. The joins are in this order so that each attempt is read once, and not once per worker; a run
-- without a price is not grouped.
with span as materialized (
    select host, worker, min(claimed_at) as first_at, max(coalesce(ended_at, :now)) as last_at, max(price_usd_per_hour) as price
      from attempt where run_id = (select run_id from attempt where run_id = :run_id and price_usd_per_hour > 0 limit 1)
     group by host, worker having max(price_usd_per_hour) > 0
), used as (
    select s.price, s.last_at - s.first_at as whole_s,
           total(max(0, min(coalesce(a.ended_at, :now), s.last_at) - max(a.claimed_at, s.first_at))) as used_s
      from run r cross join attempt a on a.run_id = r.id cross join span s on s.host = a.host and s.worker = a.worker
     where r.created_at < (select max(last_at) from span) and coalesce(r.ended_at, :now) >= (select min(first_at) from span)
     group by s.host, s.worker, s.price, s.first_at, s.last_at
)
select total(price * max(0, whole_s - used_s)) / 3600.0 as idle_usd from used;

-- name: select_results_page
select number, key, domain, state, score, success, steps, metrics, duration_s, attempts, worker, kind, blame, evidence, reason, decided_by
  from task where run_id = :run_id and number > :after order by number limit :limit;

-- name: select_live_attempts
-- Live ones are few, and only the partial index knows where they are.
select t.key, t.domain, a.task_number, a.number, a.state, a.host, a.worker, a.step, a.claimed_at, a.started_at, a.ready_at,
       a.reported_usd
  from attempt a indexed by attempt_unended join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.state <> 'ended' and a.state <> 'collecting'
 order by a.claimed_at, a.task_number;

-- name: sum_workers
select worker, count(*) as assigned, count(case when outcome = 'ok' then 1 end) as completed
  from attempt where run_id = :run_id group by worker order by worker;

-- name: sum_failures
-- Per kind and blame: attempts, tasks, and the latest one as an example (the bare columns follow max()).
select a.kind, a.blame, count(*) as count, count(distinct a.task_number) as tasks, max(a.ended_at) as ended_at,
       a.evidence, t.key
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.kind is not null
 group by a.kind, a.blame order by count desc, a.kind, a.blame;

-- name: select_failure_lines
-- Per task, kind, blame and evidence: attempts, and when the latest ended.
select a.kind, a.blame, coalesce(a.evidence, '') as evidence, t.key, count(*) as attempts, max(a.ended_at) as ended_at
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.kind is not null and a.kind <> 'cancelled'
 group by a.task_number, t.key, a.kind, a.blame, a.evidence order by max(a.ended_at) desc limit :limit;

-- name: select_last_failures
select t.key, a.number, a.worker, a.kind, a.blame, a.evidence, a.ended_at
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.kind is not null and a.kind <> 'cancelled'
 order by a.ended_at desc, a.task_number desc limit :limit;

-- name: select_attempt_rows
-- Attempts without their end records.
select task_number, number, state, outcome, host, worker, claimed_at, started_at, ended_at, duration_s, step, cost_usd,
       score, success, kind, blame, evidence
  from attempt where run_id = :run_id and (task_number, number) > (:task_number, :number)
 order by task_number, number limit :limit;

-- name: select_last_event
select * from event where run_id = :run_id and (:type is null or type = :type) order by number desc limit 1;

-- name: select_worker_events
select * from event where run_id = :run_id and (type glob 'worker.*' or type = 'run.taken') order by number;

-- name: select_durations
select duration_s from task
 where run_id = :run_id and state in ('done', 'failed') and duration_s is not null limit :limit;

-- name: select_held
select key, reason from task where run_id = :run_id and state = 'held' order by number limit :limit;

-- name: sum_episodes
-- Per task of a benchmark, named in the payloads of its episodes, or per repeated task of a file. One that failed by its own
-- fault scores 0. The first task tells whether there are any; it is joined first, so that the others are read only then.
select json_extract(spec, '$.payload.benchmark') as benchmark,
       coalesce(json_extract(spec, '$.repeats'), json_extract(spec, '$.payload.task')) as task, domain,
       count(*) as episodes, count(case when state in ('done', 'failed') then 1 end) as counted,
       total(success) as successes, total(score) as score, total(score * score) as squares,
       min(case state when 'done' then score when 'failed' then 0.0 end) as low,
       max(case state when 'done' then score when 'failed' then 0.0 end) as high
  from (select run_id as benchmark_run from task
         where run_id = :run_id and number = 1
           and (json_type(spec, '$.payload.benchmark') = 'text' or json_type(spec, '$.repeats') = 'text')) first
  join task on run_id = benchmark_run
 where json_type(spec, '$.payload.task') = 'text' or json_type(spec, '$.repeats') = 'text'
 group by 1, 2, 3 order by min(number);

-- name: select_payloads
select key, json_quote(json_extract(spec, '$.payload')) as payload from task where run_id = :run_id order by number;

-- name: select_episodes
select key, json_extract(spec, '$.payload.benchmark') as benchmark,
       coalesce(json_extract(spec, '$.repeats'), json_extract(spec, '$.payload.task')) as task,
       coalesce(json_extract(spec, '$.seed'), json_extract(spec, '$.payload.seed')) as seed,
       json_extract(spec, '$.payload.max_steps') as max_steps
  from task
 where run_id = :run_id and (json_type(spec, '$.payload.task') = 'text' or json_type(spec, '$.repeats') = 'text')
   and exists (select 1 from task where run_id = :run_id and number = 1
                  and (json_type(spec, '$.payload.benchmark') = 'text' or json_type(spec, '$.repeats') = 'text'))
 order by number;

-- name: select_models
select distinct json_extract(spec, '$.payload.model') as model from task where run_id = :run_id;
