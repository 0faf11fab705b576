-- name: upsert_pin
insert into pin (run_id, pinned_at, pinned_by, reason) values (:run_id, :now, :pinned_by, :reason)
on conflict (run_id) do update set pinned_at = excluded.pinned_at, pinned_by = excluded.pinned_by, reason = excluded.reason;

-- name: delete_pin
delete from pin where run_id = :run_id returning run_id;

-- name: select_pin
select * from pin where run_id = :run_id;

-- name: select_finished_runs
-- Runs that are over and of which everything is collected, oldest first.
select r.id, r.name, coalesce(r.ended_at, r.created_at) as ended_at, p.run_id is not null as pinned
  from run r left join pin p on p.run_id = r.id
 where r.state in ('completed', 'cancelled')
   and not exists (select 1 from attempt a where a.run_id = r.id and a.state <> 'ended')
 order by coalesce(r.ended_at, r.created_at), r.id;

-- name: begin_removal
-- Nothing of a run that goes on again, is not collected, or was pinned meanwhile.
insert into removal (run_id, part, name, removed_at, reason)
select id, :part, name, :now, :reason from run
 where id = :run_id and state in ('completed', 'cancelled')
   and not exists (select 1 from pin where run_id = :run_id)
   and not exists (select 1 from attempt where run_id = :run_id and state <> 'ended')
on conflict (run_id, part) do update set removed_at = excluded.removed_at, reason = excluded.reason
returning run_id;

-- name: add_removed
update removal set files = files + :files, freed = freed + :freed where run_id = :run_id and part = :part;

-- name: select_removals
select * from removal where run_id = :run_id order by removed_at, part;

-- name: select_removed_run
select * from removal
 where part = 'run' and (run_id = :run_id or name = :run_id) and not exists (select 1 from run where id = removal.run_id)
 order by removed_at desc limit 1;

-- name: delete_requests_of_run
delete from request where run_id = :run_id;

-- name: delete_attempts_of_run
delete from attempt where run_id = :run_id;

-- name: delete_tasks_of_run
delete from task where run_id = :run_id;

-- name: delete_plans_of_run
delete from plan where run_id = :run_id;

-- name: delete_events_of_run
delete from event where run_id = :run_id;

-- name: delete_run
delete from run where id = :run_id;
