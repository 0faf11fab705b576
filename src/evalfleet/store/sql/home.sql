-- name: select_home
select * from home;

-- name: insert_home
insert into home (id, label, legacy, former, path, inode, device, boot, machine)
values (:id, :label, :legacy, :former, :path, :inode, :device, :boot, :machine)
returning *;

-- name: place_home
update home set path = :path, inode = :inode, device = :device, boot = :boot, machine = :machine;

-- name: forget_home
delete from home;

-- name: select_member
select * from member where id = :id;

-- name: insert_member
insert into member (id, host, path, inode, device, boot, machine, joined_at)
values (:id, :host, :path, :inode, :device, :boot, :machine, :joined_at);

-- name: place_member
update member set path = :path, inode = :inode, device = :device, boot = :boot, machine = :machine where id = :id;
