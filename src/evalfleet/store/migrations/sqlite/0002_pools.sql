-- A named set of hosts that runs may use.
create table pool (
    name       text primary key,
    backend    text not null,
    settings   text not null,                  -- JSON; what the backend needs to find the hosts
    created_at real not null
) strict, without rowid;
