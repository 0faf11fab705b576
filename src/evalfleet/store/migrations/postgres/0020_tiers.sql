-- A pool may consist of other pools, its tiers: which, and how each is doing.
create table tier (
    pool         text collate "C" not null,
    name         text collate "C" not null,
    place        bigint not null,
    breaker      text collate "C" not null,
    base_usd     double precision not null,
    usd_per_hour double precision,
    primary key (pool, name)
);

create index tier_name on tier (name);

-- What a run on such a pool could use of each tier, and why.
create table tier_demand (
    tier    text collate "C" not null,
    run_id  text collate "C" not null,
    pool    text collate "C" not null,
    workers bigint not null,
    why     text collate "C" not null,
    primary key (tier, run_id)
);
