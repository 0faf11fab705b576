-- name: select_share_rules
select * from share_rule order by subject, name;

-- name: upsert_share_rule
insert into share_rule (subject, name, weight, running, gpus, usd_per_day)
values (:subject, :name, :weight, :running_number, :gpus, :usd_per_day)
on conflict (subject, name) do update set weight = excluded.weight, running = excluded.running, gpus = excluded.gpus,
                                       usd_per_day = excluded.usd_per_day
returning *;

-- name: delete_share_rule
delete from share_rule where subject = :subject and name = :name returning name;

-- name: select_use
-- What runs now for a user or a project, and what it may cost; but few attempts of a home are live.
select count(*) as running, coalesce(sum(a.gpus), 0) as gpus,
       total(max(a.committed_usd, a.price_usd_per_hour * max(0.0, :now - coalesce(a.started_at, a.claimed_at)) / 3600.0 + a.reported_usd))
           as committed_usd
  from attempt a indexed by attempt_unended cross join run r on r.id = a.run_id
 where a.state <> 'ended' and a.state in ('leased', 'starting', 'running')
   and case when :subject = 'user' then r.owner = :name else r.project = :name end;

-- name: select_holders
select distinct r.owner as owner, r.project as project from run r
 where r.id in (select run_id from attempt indexed by attempt_unended where state <> 'ended' and state <> 'collecting');

-- name: sum_spent_since
-- What attempts cost that ended since then. The index has only those that cost something.
select total(a.cost_usd) as spent_usd
  from attempt a indexed by attempt_cost cross join run r on r.id = a.run_id
 where a.cost_usd > 0 and a.ended_at >= :since
   and case when :subject = 'user' then r.owner = :name else r.project = :name end;

-- name: publish_demand
insert into slot_demand (run_id, pool, priority, wanted_number, waits_since, said_at)
values (:run_id, :pool, :priority_number, :wanted_number, :waits_since, :now)
on conflict (run_id) do update set pool = excluded.pool, priority = excluded.priority, wanted_number = excluded.wanted_number,
                                   waits_since = excluded.waits_since, said_at = excluded.said_at
returning run_id;

-- name: drop_old_demand
delete from slot_demand where said_at < :since returning run_id;

-- name: select_demand
-- What other runs on the pool have and want: those whose controllers said so of late, and those that only have attempts there.
-- An attempt whose lease has expired has no controller; its slot may be free already.
select r.id as run_id, r.owner as owner, r.project as project,
       coalesce(d.priority, 0) as priority, coalesce(d.wanted_number, 0) as wanted, d.waits_since as waits_since,
       coalesce(held.live, 0) as live, coalesce(held.used_s, 0) as used_s
  from run r
  left join slot_demand d on d.run_id = r.id and d.said_at >= :since
  left join (select a.run_id as run_id, count(*) as live, total(:now - coalesce(a.started_at, a.claimed_at)) as used_s
               from attempt a indexed by attempt_unended
              where a.state <> 'ended' and a.state in ('leased', 'starting', 'running') and a.lease_expires_at > :now
              group by a.run_id) held on held.run_id = r.id
 where r.id in (select run_id from slot_demand where pool = :pool and said_at >= :since
                union
                select g.id from run g
                 where g.id in (select run_id from attempt indexed by attempt_unended where state <> 'ended')
                   and json_extract(g.policy, '$.pool') = :pool)
   and (r.state = 'running' or coalesce(held.live, 0) > 0) and r.id <> :run_id
 order by r.id;

-- name: select_slot_use
select user_name, project, used_s, noted_at from slot_use where :name is null or (user_name = :name and project = :project);

-- name: upsert_slot_use
insert into slot_use (user_name, project, used_s, noted_at) values (:name, :project, :used_s, :now)
on conflict (user_name, project) do update set used_s = excluded.used_s, noted_at = excluded.noted_at
returning user_name;
