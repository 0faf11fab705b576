-- name: select_gpus
select * from gpu order by host, uuid;

-- name: select_gpus_of
select * from gpu where host = :host order by uuid;

-- name: see_gpu
-- An older look changes nothing, nor does one from before the end of the last lease.
insert into gpu (host, uuid, facts, seen_at, base_mb) values (:host, :uuid, :facts, :seen_at, :base_mb)
on conflict (host, uuid) do update
   set facts = excluded.facts, seen_at = excluded.seen_at, base_mb = coalesce(excluded.base_mb, gpu.base_mb),
       avoid_until = case when :is_clean = 1 and :seen_at > gpu.avoid_until - :settled_s then 0 else gpu.avoid_until end,
       clean_since = case when gpu.quarantine is null or :is_clean = 0 then null else coalesce(gpu.clean_since, :seen_at) end
 where excluded.seen_at > gpu.seen_at and excluded.seen_at >= gpu.released_at
returning *;

-- name: forget_gpus
-- Those that their host does not have any more; what is in quarantine stays so.
delete from gpu where host = :host and quarantine is null and uuid not in (select value from json_each(:uuids)) returning uuid;

-- name: quarantine_gpu
update gpu set quarantine = :reason, quarantined_at = :now, quarantined_for = :run_id, clean_since = null
 where host = :host and uuid = :uuid returning *;

-- name: unquarantine_gpu
update gpu set quarantine = null, quarantined_at = null, clean_since = null
 where host = :host and uuid = :uuid and quarantine is not null returning *;

-- name: avoid_gpu
update gpu set avoid_until = :until where host = :host and uuid = :uuid;

-- name: release_gpus
-- Who seemed to lock it was the holder, and the processes of a program seemed to be a stranger's.
update gpu
   set released_at = :now,
       facts = case when :programs = 1 then json_set(facts, '$.foreign', json('[]'), '$.held', null, '$.unexplained_mb', null)
                    else json_set(facts, '$.held', null, '$.unexplained_mb', null) end
 where (host, uuid) in (select host, uuid from gpu_lease where holder = :holder);

-- name: delete_gpu_leases
delete from gpu_lease where holder = :holder returning host, uuid;

-- name: insert_gpu_lease
insert into gpu_lease (host, uuid, holder, place, memory_mb, run_id, task_number, number, program, pid, born, boot, since_at, seen_at)
values (:host, :uuid, :holder, :place, :memory_mb, :run_id, :task_number, :number, :program, :pid, :born, :boot, :now, :now);

-- name: select_gpu_leases
-- An abandoned attempt counts as long as its host says that it runs.
select l.* from gpu_lease l left join attempt a on a.run_id = l.run_id and a.task_number = l.task_number and a.number = l.number
 where l.run_id is null
    or (a.state in ('leased', 'starting', 'running')
        and (a.lease_expires_at > :now or l.holder in (select value from json_each(:others))))
 order by l.since_at, l.holder, l.place;

-- name: select_program_leases
select distinct holder, pid, born, boot, seen_at from gpu_lease where run_id is null;

-- name: renew_gpu_leases
update gpu_lease set seen_at = :now where holder = :holder returning uuid;

-- name: select_gpu_tickets
select * from gpu_ticket order by number;

-- name: insert_gpu_ticket
insert into gpu_ticket (owner, run_id, task_number, program, pid, born, boot, gpus, memory_mb, least_mb, hosts, places, pack, reserved,
                        line, since_at, seen_at)
values (:owner, :run_id, :task_number, :program, :pid, :born, :boot, :gpus, :memory_mb, :least_mb, :hosts, :places, :pack, :reserved,
        :line, :now, :now);

-- name: rejoin_gpu_line
-- Somebody who had his turn goes to the end, unless he was served out of turn: another of his tickets is older.
update gpu_ticket set line = (select max(line) + 1 from gpu_ticket)
 where owner = :owner and not exists (select 1 from gpu_ticket where owner = :owner and number < :number);

-- name: update_gpu_ticket
update gpu_ticket set hosts = :hosts, reserved = :reserved, seen_at = :seen_at where number = :number;

-- name: reserve_gpus
update gpu_ticket set reserved = :reserved where number = :number;

-- name: delete_gpu_tickets
delete from gpu_ticket where owner = :owner returning number;

-- name: delete_task_ticket
delete from gpu_ticket where owner = :owner and coalesce(task_number, 0) = :task_number returning number;

-- name: select_gpu_turn
select number from gpu_turn;

-- name: next_gpu_turn
update gpu_turn set number = number + 1;
