-- name: select_children
select name, retry, controller from child where kind = :kind order by name;

-- name: select_child
select controller from child where kind = :kind and name = :name;

-- name: upsert_child
insert into child (kind, name, retry, controller) values (:kind, :name, :retry, :controller)
on conflict (kind, name) do update set retry = excluded.retry, controller = excluded.controller;

-- name: release_child
update child set controller = '' where kind = :kind and name = :name and controller = :controller;

-- name: release_children
update child set controller = '' where controller = :controller;

-- name: delete_child
delete from child where kind = :kind and name = :name and controller = :controller;

-- name: select_alert_sender
select * from alert_sender;

-- name: upsert_alert_sender
insert into alert_sender ("only", token, pid, born, boot, expires_at) values (1, :token, :pid, :born, :boot, :expires_at)
on conflict ("only") do update set token = excluded.token, pid = excluded.pid, born = excluded.born, boot = excluded.boot,
  expires_at = excluded.expires_at;

-- name: delete_alert_sender
delete from alert_sender where token = :token;
