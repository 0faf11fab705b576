-- What users and projects may have; name '*': each one that is not named.
create table share_rule (
    subject     text collate "C" not null check (subject in ('user', 'project')),
    name        text collate "C" not null,
    weight      double precision,
    running     bigint,
    gpus        bigint,
    usd_per_day double precision,
    primary key (subject, name)
);

-- How many slots of a pool a run could use, as its controller says again and again.
create table slot_demand (
    run_id        text collate "C" primary key references run (id),
    pool          text collate "C" not null,
    priority      bigint not null,
    wanted_number bigint not null,
    waits_since   double precision,
    said_at       double precision not null
);

create index slot_demand_pool on slot_demand (pool, said_at);

-- Slot time of ended attempts of late: it halves with each hour.
create table slot_use (
    user_name text collate "C" not null,
    project   text collate "C" not null,
    used_s    double precision not null,
    noted_at  double precision not null,
    primary key (user_name, project)
);

alter table attempt add column committed_usd double precision not null default 0;
create index attempt_cost on attempt (ended_at, run_id, cost_usd) where cost_usd > 0;
