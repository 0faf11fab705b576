-- name: insert_user
insert into user_account (name, role, origin, subject, created_at) values (:name, :role, :origin, :subject, :now)
on conflict (name) do nothing
returning *;

-- name: select_users
select * from user_account order by name;

-- name: select_user
select * from user_account where name = :name;

-- name: select_user_of_subject
select * from user_account where subject = :subject;

-- name: set_user
update user_account set role = :role, disabled = :disabled where name = :name returning *;

-- name: delete_user
delete from user_account where name = :name returning *;

-- name: delete_tokens_of_user
delete from access_token where user_name = :name returning id;

-- name: insert_audit
insert into audit (at, user_name, token, address, operation, object, outcome, detail)
values (:now, :user_name, :token, :address, :operation, :object, :outcome, :detail);

-- name: select_audit
select * from audit
 where number < :before
   and (:user_name is null or user_name = :user_name)
   and (:operation is null or operation like :operation escape '\')
   and (:object is null or object = :object)
 order by number desc limit :limit;
