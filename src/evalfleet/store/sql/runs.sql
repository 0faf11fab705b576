-- name: insert_run
insert into run (id, name, state, open, policy, folder, base_env, created_at, owner, project, tags)
values (:id, :name, 'queued', :open, :policy, :folder, :base_env, :now, :owner, :project, :tags);

-- name: select_run
select * from run where id = :id;

-- name: select_runs_like
select * from run where id like :prefix escape '\' or name = :name
order by id = :name desc, name = :name desc, created_at desc, rowid desc limit 20;

-- name: select_latest_run
select * from run order by created_at desc, rowid desc limit 1;

-- name: select_runs
select * from run order by created_at desc, rowid desc limit :limit;

-- name: take_run
-- A new driver raises the epoch; statements of the old one match nothing from here on.
update run set driver = :driver, epoch = epoch + 1 where id = :id returning *;

-- name: leave_run
update run set driver = null where id = :id and epoch = :epoch returning *;

-- name: begin_run
update run
   set state = 'running', reason = null, pausing = null, ended_at = null, started_at = coalesce(started_at, :now)
 where id = :id and epoch = :epoch and state in ('queued', 'paused', 'completed', 'cancelled')
returning *;

-- name: pause_run
update run set state = 'paused', reason = :reason, pausing = null
 where id = :id and epoch = :epoch and state = 'running'
returning *;

-- name: complete_run
update run set state = 'completed', pausing = null, ended_at = :now
 where id = :id and epoch = :epoch and state = 'running' and open = 0
   and not exists (select 1 from task where run_id = :id and state in ('queued', 'running'))
returning *;

-- name: cancel_run
update run set state = 'cancelled', reason = null, pausing = null, ended_at = :now, cancelling = 0, open = 0
 where id = :id and epoch = :epoch and state in ('queued', 'running', 'paused')
   and not exists (select 1 from task where run_id = :id and state in ('queued', 'running', 'held'))
returning *;

-- name: select_room_for_tasks
-- The number of the last task of a run that may get more.
select (select coalesce(max(number), 0) from task where run_id = :id) as last
  from run where id = :id and epoch = :epoch and open = 1 and state = 'running';

-- name: set_open
update run set open = :open where id = :id and epoch = :epoch and open <> :open returning *;

-- name: mark_cancelling
update run set cancelling = 1 where id = :id and epoch = :epoch and state in ('queued', 'running', 'paused') returning id;

-- name: unmark_cancelling
update run set cancelling = 0 where id = :id and epoch = :epoch and cancelling = 1 returning id;

-- name: set_pausing
update run set pausing = :pausing where id = :id and epoch = :epoch and state = 'running' returning id;

-- name: amend_policy
update run set policy = :policy where id = :id and epoch = :epoch returning *;

-- name: store_breaker
update run set breaker = :breaker where id = :id and epoch = :epoch returning id;

-- name: select_breaker
select breaker from run where id = :id;
