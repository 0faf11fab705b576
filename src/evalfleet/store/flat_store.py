"""The former flat names of the store (`store.claim`), until all callers say `store.attempts.claim`."""

# pyright: basic
# ruff: noqa: ANN201
from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from evalfleet.store.store import Store


class FlatStore:
    @property
    def submit(self):
        return cast("Store", self).runs.submit

    @property
    def set_open(self):
        return cast("Store", self).runs.set_open

    @property
    def take(self):
        return cast("Store", self).runs.take

    @property
    def leave(self):
        return cast("Store", self).runs.leave

    @property
    def begin(self):
        return cast("Store", self).runs.begin

    @property
    def pause(self):
        return cast("Store", self).runs.pause

    @property
    def complete(self):
        return cast("Store", self).runs.complete

    @property
    def cancel(self):
        return cast("Store", self).runs.cancel

    @property
    def amend(self):
        return cast("Store", self).runs.amend

    @property
    def store_breaker(self):
        return cast("Store", self).runs.store_breaker

    @property
    def set_pausing(self):
        return cast("Store", self).runs.set_pausing

    @property
    def add_tasks(self):
        return cast("Store", self).tasks.add

    @property
    def bound_waiting(self):
        return cast("Store", self).tasks.bound_waiting

    @property
    def conclude(self):
        return cast("Store", self).tasks.conclude

    @property
    def hold(self):
        return cast("Store", self).tasks.hold

    @property
    def release(self):
        return cast("Store", self).tasks.release

    @property
    def retry(self):
        return cast("Store", self).tasks.retry

    @property
    def cancel_tasks(self):
        return cast("Store", self).tasks.cancel

    @property
    def claim(self):
        return cast("Store", self).attempts.claim

    @property
    def progress(self):
        return cast("Store", self).attempts.progress

    @property
    def finish(self):
        return cast("Store", self).attempts.finish

    @property
    def charge(self):
        return cast("Store", self).attempts.charge

    @property
    def collect(self):
        return cast("Store", self).attempts.collect

    @property
    def renew(self):
        return cast("Store", self).attempts.renew

    @property
    def rejudge(self):
        return cast("Store", self).attempts.rejudge

    @property
    def note(self):
        return cast("Store", self).events.note

    @property
    def request(self):
        return cast("Store", self).requests.add

    @property
    def obey(self):
        return cast("Store", self).requests.obey

    @property
    def create_pool(self):
        return cast("Store", self).pools.create

    @property
    def replace_pool(self):
        return cast("Store", self).pools.replace

    @property
    def delete_pool(self):
        return cast("Store", self).pools.delete

    @property
    def take_pool(self):
        return cast("Store", self).pools.take

    @property
    def leave_pool(self):
        return cast("Store", self).pools.leave

    @property
    def amend_pool(self):
        return cast("Store", self).pools.amend

    @property
    def explain_pool(self):
        return cast("Store", self).pools.explain

    @property
    def mark_pool_for_deletion(self):
        return cast("Store", self).pools.mark_for_deletion

    @property
    def request_hosts(self):
        return cast("Store", self).hosts.request

    @property
    def set_desired(self):
        return cast("Store", self).hosts.set_desired

    @property
    def move_host(self):
        return cast("Store", self).hosts.move

    @property
    def see_gpus(self):
        return cast("Store", self).gpus.see

    @property
    def ask_gpus(self):
        return cast("Store", self).gpus.ask

    @property
    def lease_gpus(self):
        return cast("Store", self).gpus.lease

    @property
    def renew_gpus(self):
        return cast("Store", self).gpus.renew

    @property
    def free_gpus(self):
        return cast("Store", self).gpus.free

    @property
    def avoid_gpus(self):
        return cast("Store", self).gpus.avoid

    @property
    def quarantine_gpu(self):
        return cast("Store", self).gpus.quarantine

    @property
    def unquarantine_gpu(self):
        return cast("Store", self).gpus.unquarantine

    @property
    def add_loads(self):
        return cast("Store", self).loads.add

    @property
    def add_token(self):
        return cast("Store", self).tokens.add

    @property
    def renew_token(self):
        return cast("Store", self).tokens.renew

    @property
    def revoke_token(self):
        return cast("Store", self).tokens.revoke

    @property
    def remember_child(self):
        return cast("Store", self).daemon.remember_child

    @property
    def forget_child(self):
        return cast("Store", self).daemon.forget_child

    @property
    def claim_alerts(self):
        return cast("Store", self).daemon.claim_alerts

    @property
    def release_alerts(self):
        return cast("Store", self).daemon.release_alerts

    @property
    def adopt(self):
        return cast("Store", self).home.adopt
