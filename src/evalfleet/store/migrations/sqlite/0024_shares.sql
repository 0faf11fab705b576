-- What users and projects may have; name '*': each one that is not named.
create table share_rule (
    subject     text not null check (subject in ('user', 'project')),
    name        text not null,
    weight      real,                          -- null: not said, as below
    running     integer,                       -- attempts at a time
    gpus        integer,                       -- at a time
    usd_per_day real,
    primary key (subject, name)
) strict, without rowid;

-- How many slots of a pool a run could use, as its controller says again and again.
create table slot_demand (
    run_id        text primary key references run (id),
    pool          text not null,
    priority      integer not null,
    wanted_number integer not null,            -- with those that it has
    waits_since   real,                        -- it has no slot and wants one; null: it has some
    said_at       real not null
) strict, without rowid;

create index slot_demand_pool on slot_demand (pool, said_at);

-- Slot time of ended attempts of late: it halves with each hour.
create table slot_use (
    user_name text not null,
    project   text not null,
    used_s    real not null,
    noted_at  real not null,
    primary key (user_name, project)
) strict, without rowid;

alter table attempt add column committed_usd real not null default 0; -- what it may cost, as known when it was claimed
create index attempt_cost on attempt (ended_at, run_id, cost_usd) where cost_usd > 0;
