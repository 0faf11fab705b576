"""The former flat names of the store (`store.claim`), until all callers say `store.attempts.claim`."""

# pyright: basic
# ruff: noqa: ANN201
from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from evalfleet.store.reader import StoreReader
    from evalfleet.store.store import Store


class FlatReader:
    @property
    def run(self):
        return cast("StoreReader", self).runs.get

    @property
    def find_run(self):
        return cast("StoreReader", self).runs.find

    @property
    def driver(self):
        return cast("StoreReader", self).runs.driver

    @property
    def run_counts(self):
        return cast("StoreReader", self).runs.counts

    @property
    def runs_page(self):
        return cast("StoreReader", self).runs.page

    @property
    def breaker(self):
        return cast("StoreReader", self).runs.breaker

    @property
    def task(self):
        return cast("StoreReader", self).tasks.get

    @property
    def task_at(self):
        return cast("StoreReader", self).tasks.at

    @property
    def counts(self):
        return cast("StoreReader", self).tasks.counts

    @property
    def candidates(self):
        return cast("StoreReader", self).tasks.candidates

    @property
    def next_due(self):
        return cast("StoreReader", self).tasks.next_due

    @property
    def tasks_page(self):
        return cast("StoreReader", self).tasks.page

    @property
    def result_rows(self):
        return cast("StoreReader", self).tasks.result_rows

    @property
    def task_sums(self):
        return cast("StoreReader", self).tasks.sums

    @property
    def state_sums(self):
        return cast("StoreReader", self).tasks.state_sums

    @property
    def episode_sums(self):
        return cast("StoreReader", self).tasks.episode_sums

    @property
    def episodes(self):
        return cast("StoreReader", self).tasks.episodes

    @property
    def payloads(self):
        return cast("StoreReader", self).tasks.payloads

    @property
    def durations(self):
        return cast("StoreReader", self).tasks.durations

    @property
    def held(self):
        return cast("StoreReader", self).tasks.held

    @property
    def unended(self):
        return cast("StoreReader", self).attempts.unended

    @property
    def judged(self):
        return cast("StoreReader", self).attempts.judged

    @property
    def hosts_of(self):
        return cast("StoreReader", self).attempts.hosts

    @property
    def attempt_rows(self):
        return cast("StoreReader", self).attempts.all_rows

    @property
    def live_attempts(self):
        return cast("StoreReader", self).attempts.live

    @property
    def lane_rows(self):
        return cast("StoreReader", self).attempts.lanes

    @property
    def attempt_sums(self):
        return cast("StoreReader", self).attempts.sums

    @property
    def worker_sums(self):
        return cast("StoreReader", self).attempts.worker_sums

    @property
    def time_sums(self):
        return cast("StoreReader", self).attempts.time_sums

    @property
    def failure_sums(self):
        return cast("StoreReader", self).attempts.failure_sums

    @property
    def failure_lines(self):
        return cast("StoreReader", self).attempts.failure_lines

    @property
    def last_failures(self):
        return cast("StoreReader", self).attempts.last_failures

    @property
    def failed_page(self):
        return cast("StoreReader", self).attempts.failed_page

    @property
    def cost_usd(self):
        return cast("StoreReader", self).costs.total_usd

    @property
    def attempt_costs(self):
        return cast("StoreReader", self).costs.of_attempts

    @property
    def stated_costs(self):
        return cast("StoreReader", self).costs.stated

    @property
    def waste_usd(self):
        return cast("StoreReader", self).costs.waste_usd

    @property
    def waste_sums(self):
        return cast("StoreReader", self).costs.waste_sums

    @property
    def idle_usd(self):
        return cast("StoreReader", self).costs.idle_usd

    @property
    def events_before(self):
        return cast("StoreReader", self).events.before

    @property
    def all_events(self):
        return cast("StoreReader", self).events.all

    @property
    def last_number(self):
        return cast("StoreReader", self).events.last_number

    @property
    def last_event(self):
        return cast("StoreReader", self).events.last

    @property
    def alert_events(self):
        return cast("StoreReader", self).events.alerts

    @property
    def reap_events(self):
        return cast("StoreReader", self).events.reaps

    @property
    def quarantine_events(self):
        return cast("StoreReader", self).events.quarantines

    @property
    def worker_events(self):
        return cast("StoreReader", self).events.workers

    @property
    def answer(self):
        return cast("StoreReader", self).requests.answer

    @property
    def pool(self):
        return cast("StoreReader", self).pools.get

    @property
    def pool_owner(self):
        return cast("StoreReader", self).pools.owner

    @property
    def pool_tallies(self):
        return cast("StoreReader", self).pools.tallies

    @property
    def pool_demand(self):
        return cast("StoreReader", self).pools.demand

    @property
    def host_loads(self):
        return cast("StoreReader", self).hosts.live_counts

    @property
    def host_work(self):
        return cast("StoreReader", self).hosts.work

    @property
    def last_uses(self):
        return cast("StoreReader", self).hosts.last_uses

    @property
    def gpu_leases(self):
        return cast("StoreReader", self).gpus.leases

    @property
    def gpu_tickets(self):
        return cast("StoreReader", self).gpus.tickets

    @property
    def gpu_turn(self):
        return cast("StoreReader", self).gpus.turn

    @property
    def is_gpu_turn(self):
        return cast("StoreReader", self).gpus.is_turn

    @property
    def recent_loads(self):
        return cast("StoreReader", self).loads.recent

    @property
    def children(self):
        return cast("StoreReader", self).daemon.children

    @property
    def identity(self):
        return cast("StoreReader", self).home.identity


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
    def pardon_gpu(self):
        return cast("Store", self).gpus.pardon

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
