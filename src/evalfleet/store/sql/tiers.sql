-- name: insert_tier
-- One that was there keeps its breaker and what it had cost.
insert into tier (pool, name, place, breaker, base_usd) values (:pool, :name, :place, :breaker, :base_usd)
on conflict (pool, name) do update set place = excluded.place
returning name;

-- name: drop_tiers
-- Those that the pool has no more.
delete from tier where pool = :pool and name not in (select value from json_each(:kept)) returning name;

-- name: drop_tier_demand
delete from tier_demand where (:pool is null or pool = :pool) and (:run_id is null or run_id = :run_id) returning tier;

-- name: select_tiers
select * from tier where pool = :pool order by place;

-- name: select_pools_of_tier
select pool from tier where name = :name order by pool;

-- name: move_tier
update tier set breaker = :breaker where pool = :pool and name = :name and breaker = :breaker_read returning *;

-- name: price_tier
update tier set usd_per_hour = :usd_per_hour where pool = :pool and name = :name returning name;

-- name: upsert_tier_demand
insert into tier_demand (tier, run_id, pool, workers, why) values (:tier, :run_id, :pool, :workers, :why)
on conflict (tier, run_id) do update set pool = excluded.pool, workers = excluded.workers, why = excluded.why
returning tier;

-- name: select_tier_demand
-- Of each run that goes on and uses the pool as a tier: what it wants, and what it has there.
select tier_demand.run_id as run_id, tier_demand.workers as wanted, tier_demand.why as why, tier_demand.tier as tier,
       (select count(*) from attempt join host on host.name = attempt.host
         where attempt.run_id = run.id and attempt.state in ('leased', 'starting', 'running') and host.pool = tier_demand.tier) as live
  from tier_demand join run on run.id = tier_demand.run_id
 where run.state = 'running' and (:tier is null or tier_demand.tier = :tier) and (:pool is null or tier_demand.pool = :pool)
 order by run.created_at, tier_demand.tier, run.rowid;

-- name: select_tier_starts
-- The newest machines of a pool of which it is known how their start ended: whether they became ready, and when.
select requested_at, ready_at from machine
 where pool = :pool and (ready_at is not null or (ended_at is not null and taken = 0))
 order by requested_at desc limit :limit;
