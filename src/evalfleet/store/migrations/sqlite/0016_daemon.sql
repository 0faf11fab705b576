-- The runs and pools that a server keeps child processes for: the next server goes on with them.
create table child (
  kind text not null check (kind in ('run', 'pool')),
  name text not null,
  retry integer not null default 0, -- machines in quarantine may prove themselves again
  primary key (kind, name)
) without rowid;

-- The one process that sends alerts and acts on them, until its lease ends or it does.
create table alert_sender (
  only integer primary key default 1 check (only = 1),
  token text not null,
  pid integer not null,
  born text not null,
  boot text not null,
  expires_at real not null
);
