-- name: insert_event
insert into event (run_id, at, type, task, attempt, data) values (:run_id, :now, :type, :task, :attempt, :data);

-- name: select_events
select * from event where run_id = :run_id and number > :after order by number limit :limit;

-- name: insert_request
insert into request (run_id, verb, args, asked_by, asked_at) values (:run_id, :verb, :args, :asked_by, :now) returning number;

-- name: select_pending_requests
select * from request where run_id = :run_id and obeyed_at is null order by number;

-- name: obey_request
update request set obeyed_at = :now, answer = :answer
 where number = :number and run_id = :run_id and obeyed_at is null
   and exists (select 1 from run where id = :run_id and epoch = :epoch)
returning number;

-- name: select_request
select * from request where number = :number;
