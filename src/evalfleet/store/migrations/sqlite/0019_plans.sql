-- A plan is stored before the run that follows it: afterwards both are shown side by side.
create table plan (
    id         text primary key,
    created_at real not null,
    run_id     text,                           -- that took it
    content    text not null                   -- JSON
) strict;

create index plan_run on plan (run_id) where run_id is not null;

-- What became of each machine that was made for a pool. Its row in `host` goes with the pool; plans learn from this one.
create table machine (
    name              text not null,
    requested_at      real not null,
    pool              text not null,
    size              text not null,
    region            text not null,
    spot              integer not null,
    usd_per_hour      real not null,
    kept_usd_per_hour real not null,
    made_at           real,
    ran_from          real,                    -- since when it cost its hourly price, the first time
    ready_at          real,                    -- the first time
    allocated_since   real,
    allocated_s       real not null,
    taken             integer not null,        -- 1: the cloud took it away, or it was lost
    ended_at          real,
    primary key (name, requested_at)
) strict, without rowid;

create index machine_pool on machine (pool, requested_at);

insert into machine
select name, created_at, pool, coalesce(facts ->> '$.size', ''), coalesce(facts ->> '$.region', ''),
       coalesce(facts ->> '$.spot', 0), usd_per_hour, kept_usd_per_hour, made_at, coalesce(allocated_since, made_at), null,
       allocated_since, allocated_s, state = 'lost', gone_at
  from host;
