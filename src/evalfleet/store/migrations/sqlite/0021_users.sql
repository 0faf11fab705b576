-- The process that drives a run is its driver; the owner is the person whose run it is ('': not known, from before).
alter table run rename column owner to driver;
alter table run add column owner text not null default '';
alter table run add column project text not null default '';
alter table run add column tags text not null default '{}';   -- JSON: text by text
create index run_owner on run (owner);

-- People who may use the server. `origin` says who keeps the row: the command line, or a sign-in that makes its own users.
create table user_account (
    name       text primary key,
    role       text not null check (role in ('reader', 'member', 'operator', 'admin')),
    origin     text not null,
    subject    text unique,                    -- how an identity provider names them: issuer and subject
    disabled   integer not null default 0,
    created_at real not null
) strict, without rowid;

-- A token belongs to a user, and may do at most what its role says. SQLite cannot widen a check, so the table is made anew.
create table access_token_wider (
    id         text primary key,
    name       text not null,
    role       text not null check (role in ('reader', 'member', 'operator', 'admin')),
    user_name  text references user_account (name) on delete cascade,   -- null: from before users, or of `serve`
    digest     text not null unique,
    created_at real not null,
    expires_at real                            -- null: never
) strict, without rowid;

insert into access_token_wider (id, name, role, digest, created_at, expires_at)
select id, name, role, digest, created_at, expires_at from access_token;
drop table access_token;
alter table access_token_wider rename to access_token;

-- Who did what, when and from where. Rows are only added.
create table audit (
    number    integer primary key autoincrement,
    at        real not null,
    user_name text not null,
    token     text,                            -- id of the token, or of the session's
    address   text not null,                   -- of the network; 'local': a command on the home's machine
    operation text not null,
    object    text,                            -- run, pool, user, … that it was done to
    outcome   text not null,                   -- 'done', or the HTTP status with which it was refused
    detail    text not null                    -- JSON
) strict;
create trigger audit_keep before update on audit begin select raise(abort, 'the audit log is only added to'); end;
create trigger audit_keep_all before delete on audit begin select raise(abort, 'the audit log is only added to'); end;
