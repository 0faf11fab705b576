-- name: select_all_events
-- Of all runs; numbers become visible in their order, so that nothing is missed by asking for what is above the last one.
select * from event where number > :after order by number limit :limit;

-- name: select_last_number
select coalesce(max(number), 0) as number from event;

-- name: select_events_before
select * from event where run_id = :run_id and number < :before order by number desc limit :limit;

-- name: select_alert_events
select * from event indexed by event_alert where type >= 'alert.' and type < 'alert/' and number > :after order by number;

-- name: select_reap_events
select * from event indexed by event_reap where type >= 'reap.' and type < 'reap/' and number > :after order by number;

-- name: select_quarantine_events
select * from event indexed by event_quarantine
 where run_id = :run_id and type in ('worker.quarantined', 'worker.unquarantined') order by number;

-- name: select_runs_page
select rowid, * from run
 where rowid < :before
   and (:states is null or state in (select value from json_each(:states)))
   and (:search is null or name like :search escape '\' or id like :search escape '\')
   and (:owner is null or owner = :owner)
   and (:project is null or project = :project)
   and (:tags is null or not exists (
           select 1 from json_each(:tags) as wanted
            where coalesce(json_extract(run.tags, '$.' || json_extract(wanted.value, '$[0]')), '')
                  <> json_extract(wanted.value, '$[1]')))
 order by rowid desc limit :limit;

-- name: select_tasks_page
select number, key, domain, state, score, success, steps, metrics, duration_s, attempts, worker, kind, blame, evidence, reason, decided_by
  from task
 where run_id = :run_id and number > :after
   and (:states is null or state in (select value from json_each(:states)))
   and (:domain is null or domain = :domain)
   and (:key is null or key = :key)
   and (:search is null or key like :search escape '\')
 order by number limit :limit;

-- name: select_lane_rows
select a.task_number, a.number, a.state, a.outcome, a.host, a.worker, a.claimed_at, a.started_at, a.ended_at, a.cost_usd,
       a.score, a.success, a.kind, a.blame, t.key
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and (a.ended_at is null or a.ended_at >= :since)
 order by a.claimed_at, a.task_number, a.number;

-- name: select_failed_page
-- Newest first; the moment alone may stand for several.
select t.key, a.task_number, a.number, a.worker, a.kind, a.blame, a.evidence, a.ended_at
  from attempt a join task t on t.run_id = a.run_id and t.number = a.task_number
 where a.run_id = :run_id and a.kind is not null
   and (:kind is null or a.kind = :kind) and (:blame is null or a.blame = :blame)
   and (a.ended_at, a.task_number, a.number) < (:ended_at, :task_number, :number)
 order by a.ended_at desc, a.task_number desc, a.number desc limit :limit;

-- name: insert_token
insert into access_token (id, name, role, user_name, digest, created_at, expires_at)
values (:id, :name, :role, :user_name, :digest, :now, :expires_at)
returning *;

-- name: select_tokens
select * from access_token order by created_at, id;

-- name: renew_token
insert into access_token (id, name, role, digest, created_at, expires_at)
values (:id, :name, :role, :digest, :now, :expires_at)
on conflict (id) do update set role = excluded.role, digest = excluded.digest, expires_at = excluded.expires_at
returning *;

-- name: delete_token
delete from access_token where id = :id returning *;

-- name: delete_expired_tokens
delete from access_token where expires_at is not null and expires_at <= :now;
