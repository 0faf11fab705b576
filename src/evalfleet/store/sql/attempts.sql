-- name: insert_attempt
insert into attempt (run_id, task_number, number, state, token, lease_expires_at, host, worker, gpus, memory_mb, devices,
                     price_usd_per_hour, committed_usd, claimed_at)
values (:run_id, :task_number, :number, 'leased', :token, :lease_expires_at, :host, :worker, :gpus, :memory_mb, :devices,
        :price_usd_per_hour, :committed_usd, :now)
returning *;

-- name: select_attempt
select * from attempt where run_id = :run_id and task_number = :task_number and number = :number;

-- name: select_attempts_of_task
select * from attempt where run_id = :run_id and task_number = :task_number order by number;

-- name: select_attempts
select * from attempt where run_id = :run_id order by task_number, number;

-- name: select_unended
-- The planner would walk all attempts of the run, because it cannot know that few are not ended.
select * from attempt indexed by attempt_unended where run_id = :run_id and state <> 'ended' order by claimed_at, task_number, number;

-- name: count_siblings
select count(*) as live from attempt
 where run_id = :run_id and task_number = :task_number and number <> :number and state in ('leased', 'starting', 'running');

-- name: select_siblings
select * from attempt
 where run_id = :run_id and task_number = :task_number and number <> :number and state in ('leased', 'starting', 'running')
 order by number;

-- name: progress_attempt
-- leased -> starting | running, starting -> running; or only new facts. Old events change nothing.
update attempt
   set state = case when :state = 'running' or (:state = 'starting' and state = 'leased') then :state else state end,
       started_at = coalesce(started_at, :started_at), ready_at = coalesce(ready_at, :ready_at),
       step = coalesce(:step, step), reported_usd = max(reported_usd, :reported_usd), last_event = :last_event
 where run_id = :run_id and task_number = :task_number and number = :number
   and state in ('leased', 'starting', 'running') and last_event < :last_event
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: finish_attempt
-- live -> collecting. A late verdict of an attempt given up as lost may still come in, as collecting or ended -> collecting.
-- `counted` says for which of its task's two counts it stands, where the task still waits for this attempt.
update attempt
   set state = 'collecting', outcome = :outcome, started_at = coalesce(started_at, :started_at), ready_at = coalesce(ready_at, :ready_at),
       ended_at = :ended_at, judged_at = :now, duration_s = :duration_s, step = coalesce(:steps, step), cost_usd = :cost_usd,
       reported_usd = max(reported_usd, :reported_usd), last_event = max(last_event, :last_event), end_record = :end_record,
       counted = case when exists (
            select 1 from task t where t.run_id = :run_id and t.number = :task_number
               and (t.state = 'running' or (:outcome = 'ok' and t.state in ('queued', 'failed', 'held')))
           ) then :counted else counted end,
       score = :score, success = :success, steps = :steps, metrics = :metrics,
       kind = :kind, blame = :blame, retryable = :retryable, consumes = :consumes, evidence = :evidence,
       judge_version = :judge_version
 where run_id = :run_id and task_number = :task_number and number = :number
   and (state in ('leased', 'starting', 'running') or (outcome = 'lost' and :outcome = 'ok'))
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: collect_attempt
-- collecting -> ended.
update attempt set state = 'ended'
 where run_id = :run_id and task_number = :task_number and number = :number and state = 'collecting'
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: charge_attempt
-- A late end tells of more time or money than was booked. What is booked never falls.
update attempt
   set cost_usd = :cost_usd, reported_usd = max(reported_usd, :reported_usd), duration_s = max(coalesce(duration_s, 0), :duration_s)
 where run_id = :run_id and task_number = :task_number and number = :number and outcome is not null and cost_usd < :cost_usd
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: renew_leases
update attempt set lease_expires_at = :until
 where run_id = :run_id and state in ('leased', 'starting', 'running') and state <> 'ended' -- for the partial index
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning number;

-- name: rejudge_attempt
update attempt
   set outcome = :outcome, kind = :kind, blame = :blame, retryable = :retryable, consumes = :consumes,
       evidence = :evidence, judge_version = :judge_version,
       counted = case when counted is null then null when :consumes = 1 then 'consumed' else 'lost' end
 where run_id = :run_id and task_number = :task_number and number = :number
   and state in ('collecting', 'ended') and outcome <> 'ok'
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning *;

-- name: uncount_attempts
-- A fresh allowance: of lost attempts, or of all where the task counts none as consumed any more.
update attempt set counted = null
 where run_id = :run_id and task_number = :number
   and (counted = 'lost' or 0 = (select consumed from task where run_id = :run_id and number = :number));

-- name: select_judged
-- What attribution needs of earlier attempts: all failures, and per executable and task the successes.
select a.run_id, t.key, a.task_number, a.number, a.host, a.worker, a.outcome, a.kind, a.blame, a.retryable, a.consumes, a.evidence,
       a.ended_at, coalesce(a.duration_s, 0) as duration_s, a.claimed_at, coalesce(a.judged_at, a.ended_at) as judged_at,
       json_extract(t.spec, '$.command[0]') as executable
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.outcome is not null
 order by coalesce(a.judged_at, a.ended_at), a.ended_at, a.task_number, a.number;

-- name: select_verdict_times
select a.host, t.domain, t.expected_s, a.duration_s
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.outcome = 'ok' and a.duration_s > 0;

-- name: count_doubled
select count(*) as count from event where run_id = :run_id and type = 'attempt.doubled';

-- name: sum_attempts
select outcome, count(*) as count, sum(cost_usd) as cost_usd, sum(duration_s) as duration_s, max(cost_usd) as max_cost_usd
  from attempt where run_id = :run_id group by outcome;

-- name: select_costs
select task_number, number, outcome, kind, cost_usd from attempt where run_id = :run_id and outcome is not null order by ended_at, task_number, number;

-- name: sum_waste
-- Money for attempts that did not decide their task by a verdict. Another one had decided it: unused. The task is read of
-- attempts only that cost something.
select case when a.outcome in ('lost', 'preempted', 'cancelled') then a.outcome when a.outcome = 'ok' then 'unused' else 'failed' end as what,
       total(a.cost_usd) as waste_usd
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.cost_usd > 0 and not (t.state = 'done' and t.decided_by = a.number)
   and a.state in ('collecting', 'ended')
 group by what;
