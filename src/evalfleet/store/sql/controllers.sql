-- name: select_controllers
select * from controller order by since, id;

-- name: insert_controller
insert into controller (id, member, host, path, pid, born, boot, since, runs)
values (:id, :member, :host, :path, :pid, :born, :boot, :since, :runs);

-- name: delete_controller
delete from controller where id = :id;

-- name: select_waits
select * from run_wait order by run_id, controller;

-- name: delete_waits
delete from run_wait where controller = :controller;

-- name: insert_wait
insert into run_wait (run_id, controller, why) values (:id, :controller, :why);

-- name: select_need
select member, why, secrets from run_need where run_id = :id;

-- name: insert_need
insert into run_need (run_id, member, why, secrets) values (:id, :member, :why, :secrets);

-- name: select_taken_owners
select r.owner as owner from child c join run r on r.id = c.name where c.kind = 'run' and r.state in ('queued', 'running');

-- name: select_untaken_runs
-- Queued runs that no controller looks after, with what each needs.
select r.id, r.policy, r.owner, r.project, n.run_id, n.member, n.why, n.secrets
  from run r left join run_need n on n.run_id = r.id
 where r.state = 'queued' and not exists (select 1 from child c where c.kind = 'run' and c.name = r.id)
 order by r.created_at, r.rowid limit :limit;
