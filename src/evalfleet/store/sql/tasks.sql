-- name: insert_task
insert into task (run_id, number, key, domain, state, spec)
values (:run_id, :number, :key, :domain, 'queued', :spec);

-- name: select_task
select * from task where run_id = :run_id and number = :number;

-- name: select_task_by_key
select * from task where run_id = :run_id and key = :key;

-- name: select_tasks
select * from task where run_id = :run_id and number > :after order by number limit :limit;

-- name: select_candidates
-- The inner query is answered by the index alone, also when thousands wait for their time.
select * from task
 where run_id = :run_id and number in (
        select number from task
         where run_id = :run_id and state = 'queued' and not_before <= :now and hold_asked = 0
         order by rank desc, number limit :limit)
 order by rank desc, number;

-- name: select_shard_candidates
-- Fixed shards: the tasks of one worker, by their number.
select * from task
 where run_id = :run_id and number in (
        select number from task
         where run_id = :run_id and state = 'queued' and not_before <= :now and hold_asked = 0
           and (number - 1) % :workers = :shard
         order by rank desc, number limit :limit)
 order by rank desc, number;

-- name: select_next_due
-- `> 0` is what the partial index needs to be recognised.
select min(not_before) as due from task where run_id = :run_id and state = 'queued' and not_before > 0 and not_before > :now;

-- name: count_tasks
select state, count(*) as count from task where run_id = :run_id group by state;

-- name: count_waiting
-- Of the queued ones, at most so many: a step asks this, and must not count a million.
select count(*) as count from (select 1 as one from task where run_id = :run_id and state = 'queued' limit :limit) found;

-- name: count_due
select count(*) as count from (
    select 1 as one from task
     where run_id = :run_id and state = 'queued' and not_before <= :now and hold_asked = 0 limit :limit) found;

-- name: count_up_to
select count(*) as count from (select 1 as one from task where run_id = :run_id limit :limit) found;

-- name: claim_task
-- queued -> running, if the run is still ours, the host is not about to be stopped or deleted, and its memory allows it.
update task
   set state = 'running', attempts = attempts + 1, worker = :worker
 where run_id = :run_id and number = :number and state = 'queued' and hold_asked = 0 and not_before <= :now
   and exists (select 1 from run where id = :run_id and epoch = :epoch and state = 'running')
   and not exists (select 1 from host where host.name = :host and host.desired <> 'running')
   and (:memory_mb = 0 or :host_memory_mb is null or :memory_mb + (
        select coalesce(sum(memory_mb), 0) from attempt
         where host = :host and state in ('leased', 'starting', 'running')
           -- An abandoned attempt counts as long as its host says that it runs.
           and (lease_expires_at > :now or run_id || '.' || task_number || '.' || number in (select value from json_each(:others))
               )) <= :host_memory_mb)
returning *;

-- name: claim_copy
-- A second attempt beside a live one of a running task, by the same conditions.
update task
   set attempts = attempts + 1
 where run_id = :run_id and number = :number and state = 'running' and hold_asked = 0 and :now >= 0 and :worker is not null
   and exists (select 1 from run where id = :run_id and epoch = :epoch and state = 'running')
   and not exists (select 1 from host where host.name = :host and host.desired <> 'running')
   and (:memory_mb = 0 or :host_memory_mb is null or :memory_mb + (
        select coalesce(sum(memory_mb), 0) from attempt
         where host = :host and state in ('leased', 'starting', 'running')
           and (lease_expires_at > :now or run_id || '.' || task_number || '.' || number in (select value from json_each(:others))
               )) <= :host_memory_mb)
returning *;

-- name: succeed_task
-- Any state without a verdict -> done: a late verdict counts if the task has none yet.
update task
   set state = 'done', score = :score, success = :success, steps = :steps, metrics = :metrics,
       kind = null, blame = null, retryable = null, consumes = null, evidence = null, reason = null,
       duration_s = :duration_s, worker = :worker, decided_by = :attempt_number, hold_asked = 0,
       consumed = (select count(*) from attempt where run_id = :run_id and task_number = :number and counted = 'consumed'),
       lost = (select count(*) from attempt where run_id = :run_id and task_number = :number and counted = 'lost')
 where run_id = :run_id and number = :number and state in ('running', 'queued', 'failed', 'held')
returning *;

-- name: fail_attempt_of_task
-- running -> queued | failed | held | cancelled, unless a sibling attempt is still live. An operator who asked to hold it
-- has the last word on everything but a cancel; then no attempt decided it.
update task
   set state = case when :siblings > 0 then state
                    when hold_asked = 1 and :state in ('queued', 'failed') then 'held'
                    else :state end,
       not_before = case when :siblings > 0 then not_before else :not_before end,
       consumed = (select count(*) from attempt where run_id = :run_id and task_number = :number and counted = 'consumed'),
       lost = (select count(*) from attempt where run_id = :run_id and task_number = :number and counted = 'lost'),
       kind = :kind, blame = :blame, retryable = :retryable, consumes = :consumes, evidence = :evidence,
       reason = case when hold_asked = 1 and :state in ('queued', 'failed') then reason else :reason end,
       duration_s = :duration_s, worker = :worker,
       decided_by = case when hold_asked = 1 and :state in ('queued', 'failed') then null else :attempt_number end,
       hold_asked = case when :siblings > 0 then hold_asked else 0 end
 where run_id = :run_id and number = :number and state = 'running'
returning *;

-- name: hold_task
update task set state = 'held', reason = :reason, decided_by = null, hold_asked = 0
 where run_id = :run_id and number = :number and state = 'queued'
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: ask_hold
update task set hold_asked = 1, reason = :reason
 where run_id = :run_id and number = :number and state = 'running' and hold_asked = 0
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: release_task
-- A task that has used up its attempts gets new ones; otherwise it goes on with what is left.
update task
   set state = 'queued', reason = null, not_before = 0, hold_asked = 0, lost = 0,
       consumed = case when consumed >= :attempts then 0 else consumed end
 where run_id = :run_id and number = :number and state = 'held'
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: unask_hold
update task set hold_asked = 0, reason = null
 where run_id = :run_id and number = :number and state = 'running' and hold_asked = 1
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: retry_task
update task
   set state = 'queued', reason = null, not_before = 0, hold_asked = 0, consumed = 0, lost = 0
 where run_id = :run_id and number = :number and state in ('failed', 'held', 'cancelled')
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: select_task_numbers
select number, key, state from task where run_id = :run_id and state in (select value from json_each(:states)) order by number;

-- name: cancel_tasks
update task set state = 'cancelled', reason = :reason, hold_asked = 0
 where run_id = :run_id and state in ('queued', 'held')
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning number, key;

-- name: judge_task
-- failed <-> held, when a newer judge moves the blame of the attempt that decided it.
update task
   set state = :state, kind = :kind, blame = :blame, retryable = :retryable, consumes = :consumes,
       evidence = :evidence, reason = :reason
 where run_id = :run_id and number = :number and state in ('failed', 'held') and decided_by = :attempt_number
returning *;

-- name: conclude_task
-- queued -> failed | held, by its latest failure.
update task set state = :state, reason = :reason, hold_asked = 0
 where run_id = :run_id and number = :number and state = 'queued'
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: select_has_history
select 1 as known from task indexed by task_history where state = 'done' limit 1;

-- name: recount_task
update task
   set consumed = (select count(*) from attempt where run_id = :run_id and task_number = :number and counted = 'consumed'),
       lost = (select count(*) from attempt where run_id = :run_id and task_number = :number and counted = 'lost')
 where run_id = :run_id and number = :number;

-- name: bound_waiting
update task set not_before = :latest
 where run_id = :run_id and state = 'queued' and not_before > 0 and not_before > :latest -- for the partial index
   and exists (select 1 from run where id = :run_id and epoch = :epoch);

-- name: expect_tasks
-- Expected duration from what the same key took in earlier runs of the same name.
with history as (
    select task.number, avg(h.duration_s) as duration_s
      from task join task h on h.key = task.key and h.state = 'done' and h.run_id <> :run_id
      join run r on r.id = h.run_id and r.name = :name
     where task.run_id = :run_id group by task.number
)
update task set expected_s = history.duration_s, rank = history.duration_s
  from history where task.run_id = :run_id and task.number = history.number and history.duration_s is not null;

-- name: select_expected
select domain, expected_s from task where run_id = :run_id and expected_s is not null order by domain, expected_s;

-- name: select_unexpected
select number, domain from task where run_id = :run_id and expected_s is null;

-- name: project_cost
-- What a task of this run should cost: the mean over its keys that have a verdict in earlier runs of the same name, all their
-- attempts included. Null where none has.
with history as (
    select avg((select total(a.cost_usd) from attempt a where a.run_id = h.run_id and a.task_number = h.number)) as usd
      from task join task h on h.key = task.key and h.state = 'done' and h.run_id <> :run_id
      join run r on r.id = h.run_id and r.name = :name
     where task.run_id = :run_id group by task.number
)
select avg(usd) as mean_usd, (select count(*) from task where run_id = :run_id) as tasks from history;

-- name: select_members
select number, key, domain, state from task where run_id = :run_id order by number;

-- name: reset_ranks
update task set rank = 0 where run_id = :run_id;

-- name: rank_task
update task set rank = :rank where run_id = :run_id and number = :number;

-- name: select_stated
-- What tasks say that an attempt of theirs costs at most, and the shortest time limit of those that do not say it.
select min(cast(json_extract(spec, '$.max_cost_usd') as double precision)) as least,
       count(*) filter (where json_extract(spec, '$.max_cost_usd') is null) as without,
       min(case when json_extract(spec, '$.max_cost_usd') is null
                then coalesce(cast(json_extract(spec, '$.timeout_s') as double precision), :timeout_s) end) as shortest_s
  from task where run_id = :run_id;
