-- A pool has an owner while somebody makes its hosts what they should be; `epoch` fences owners, as it does for runs.
alter table pool add column owner text;
alter table pool add column epoch integer not null default 0;
alter table pool add column deleting integer not null default 0;     -- 1: it goes when the last of its hosts is gone
alter table pool add column reason text;                             -- JSON {cause, message}; why it makes no more hosts

-- A machine that we made, or are about to make: the row is there before the cloud is asked. `wish` is what it should be,
-- and anybody may change it; `state` is how far it is, and only the pool's owner may.
create table host (
    name               text primary key,               -- stands for one machine in a home, for good
    pool               text not null references pool (name) on delete cascade,
    number             integer not null,
    wish               text not null check (wish in ('running', 'stopped', 'gone')),
    state              text not null check (state in ('requested', 'creating', 'preparing', 'ready', 'quarantined', 'draining', 'stopped', 'lost', 'gone')),
    reason             text,                           -- why it is so, for a person
    rung               text,                           -- of the readiness ladder: the last that held, or the one that is tried
    facts              text not null,                  -- JSON; what the backend must know to find and reach it
    usd_per_hour       real not null default 0,        -- while it is allocated
    kept_usd_per_hour  real not null default 0,        -- as long as it exists: disk, address
    made_at            real,                           -- since when it exists
    allocated_since    real,                           -- null: not allocated now
    allocated_s        real not null default 0,        -- before that
    created_at         real not null,
    updated_at         real not null,
    gone_at            real,
    check ((state = 'gone') = (gone_at is not null))
) strict, without rowid;

create index host_pool on host (pool, number);
