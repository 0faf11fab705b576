-- name: select_load_piece
select samples from host_load where host = :host and begins = :begins;

-- name: put_load_piece
insert into host_load (host, begins, thin, samples) values (:host, :begins, :thin, :samples)
on conflict (host, begins) do update set samples = excluded.samples, thin = excluded.thin;

-- name: select_thick_pieces
select host, begins, samples from host_load where thin = 0 and begins < :before order by begins limit :limit;

-- name: drop_old_pieces
delete from host_load where thin = 1 and begins < :before;

-- name: select_load_pieces
select begins, samples from host_load where host = :host and begins >= :since and begins < :until order by begins;

-- name: select_last_pieces
select host, begins, samples from host_load where thin = 0 and begins >= :since order by begins;

-- name: select_hosts_of_run
select distinct host from attempt where run_id = :run_id;

-- name: select_last_use
-- When hosts last had an attempt: asked once, when somebody begins to watch.
select host, max(coalesce(ended_at, claimed_at)) as at from attempt group by host;
