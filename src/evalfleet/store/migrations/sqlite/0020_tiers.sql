-- A pool may consist of other pools, its tiers: which, and how each is doing.
create table tier (
    pool         text not null,
    name         text not null,               -- of the pool that is the tier
    place        integer not null,
    breaker      text not null,               -- JSON
    base_usd     real not null,               -- what its machines had cost before they served this pool
    usd_per_hour real,                        -- of a worker; null: not known
    primary key (pool, name)
) strict, without rowid;

create index tier_name on tier (name);

-- What a run on such a pool could use of each tier, and why.
create table tier_demand (
    tier   text not null,
    run_id text not null,
    pool   text not null,
    workers integer not null,                 -- that it wants
    why    text not null,
    primary key (tier, run_id)
) strict, without rowid;
