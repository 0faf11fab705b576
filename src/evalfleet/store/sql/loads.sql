-- name: select_load_piece
select samples from host_load where host = :host and begins = :begins;

-- name: put_load_piece
insert into host_load (host, begins, thin, samples) values (:host, :begins, :thin, :samples)
on conflict (host, begins) do update set samples = excluded.samples, thin = excluded.thin;

-- name: select_thick_pieces
select host, begins, samples from host_load where thin = 0 and begins < :older_than order by begins limit :limit;

-- name: drop_old_pieces
delete from host_load where thin = 1 and begins < :older_than;

-- name: select_load_pieces
select begins, samples from host_load where host = :host and begins >= :since and begins < :until order by begins;

-- name: select_last_pieces
select host, begins, samples from host_load where thin = 0 and begins >= :since order by begins;

-- name: select_hosts_of_run
select distinct host from attempt where run_id = :run_id;

-- name: select_last_use
-- When hosts last had an attempt: asked once, when a watcher begins.
select host, max(coalesce(ended_at, claimed_at)) as at from attempt group by host;

-- name: sum_times
select count(a.ready_at) as start_count, sum(max(0.0, a.ready_at - coalesce(a.started_at, a.claimed_at))) as start_s,
       count(a.started_at) as dispatch_count, sum(max(0.0, a.started_at - a.claimed_at)) as dispatch_s,
       count(a.duration_s) as attempt_count, sum(a.duration_s) as attempt_s,
       count(case when a.number = 1 then 1 end) as queue_wait_count,
       sum(case when a.number = 1 then max(0.0, a.claimed_at - coalesce(r.started_at, r.created_at)) end) as queue_wait_s
  from attempt a join run r on r.id = a.run_id
 where a.run_id = :run_id;

-- name: select_live_times
select (select min(claimed_at) from attempt indexed by attempt_unended
         where run_id = :run_id and state <> 'ended' and state <> 'collecting') as oldest_claim,
       (select min(lease_expires_at) from attempt indexed by attempt_unended
         where run_id = :run_id and state <> 'ended' and state <> 'collecting') as next_expiry,
       (select max(min(t.not_before), min(coalesce(r.started_at, r.created_at))) from task t join run r on r.id = t.run_id
         where t.run_id = :run_id and t.state = 'queued' and t.not_before <= :now and t.hold_asked = 0) as waits_since;

-- name: count_runs
select state, count(*) as count from run group by state;
