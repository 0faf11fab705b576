"""`evalfleet waa image build --pool`: submits the build or finds it again, follows it, and puts everything away after it."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import anyio
import click

from evalfleet.benchmarks.waa.golden import manifest
from evalfleet.benchmarks.waa.golden.request import GoldenRequest, build_of, check, run_name
from evalfleet.benchmarks.waa.golden.stored import StoredImage, remember, remembered
from evalfleet.cli.shared.account_checks import may_buy
from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.drive import INTERRUPTED
from evalfleet.cli.waa.answers import GoldenImage
from evalfleet.daemon.alerts.beside import alerts_beside
from evalfleet.daemon.otel.beside import telemetry_beside
from evalfleet.engine.controller import cancel, drive, take
from evalfleet.engine.supervisor import Ending, owner_name
from evalfleet.errors import EvalfleetError, InputError, Owned, RunOver, WrongState
from evalfleet.files.base import read
from evalfleet.files.home import home_files
from evalfleet.model import RunState
from evalfleet.operations.machines import image_build, pools
from evalfleet.operations.machines.image_build import BuildPool
from evalfleet.pools.cloud.images import bake
from evalfleet.pools.cloud.waits import told_to
from evalfleet.report.reader import opened_run
from evalfleet.report.summary import summarise
from evalfleet.report.terminal.events import notes_of
from evalfleet.report.text import printable
from evalfleet.store.open import open_store

if TYPE_CHECKING:
    from evalfleet.benchmarks.waa.settings import WaaSettings
    from evalfleet.config import Settings
    from evalfleet.model import Run
    from evalfleet.store.reader import StoreReader
    from evalfleet.store.store import Store

FAILED = 3
_LOOK_S = 0.5


def build_on_pool(
    settings: Settings, waa: WaaSettings, request: GoldenRequest, pool: BuildPool, *, as_json: bool
) -> int:
    """Build the image on a machine of the pool; returns the exit code. Called again, it goes on where it was."""
    with closing(open_store(settings.home)) as store:
        run = _begun(settings, store, waa, request, pool)
        if not run.state.is_over and _followed(settings, store, run, as_json) is Ending.INTERRUPTED:
            _notice(f"the build goes on on its machine; the same command follows it again (run {run.id})")
            return INTERRUPTED
        run = store.runs.get(run.id)
        if not run.state.is_over:
            said = (run.reason or {}).get("message", "no machine can do it")
            _notice(f"run {run.id} is paused: {said}")
            if image_build.own_pool(store, run) is None:
                return FAILED  # the same command goes on
            anyio.run(cancel, settings, store, store.runs.take(run.id, owner_name()))
            run = store.runs.get(run.id)
        return _finished(settings, store, run, as_json)


def _begun(settings: Settings, store: Store, waa: WaaSettings, request: GoldenRequest, pool: BuildPool) -> Run:
    """The build that is under way or not put away yet; else a new one."""
    found, record = image_build.newest_build(store, run_name(request.name)), remembered(settings.home, request.name)
    if record is not None and record.deleted_at is None and (found is None or record.run == found.id):
        raise InputError(f"there is a golden image {request.name} already, built by run {record.run}; delete it first")
    if found is not None and not found.state.is_over and found.policy.pool != pool.name:
        raise InputError(f"pool {found.policy.pool!r} builds {request.name} already; name that --pool to follow it")
    if found is not None and (record is None or record.run != found.id):
        if not found.state.is_over or image_build.built(settings, store, found) is not None:
            _notice(f"going on with the build of run {found.id}")
            return found
        _leave_pool(settings, store, found)
    check(waa, request)
    return image_build.submit_build(settings, store, build_of(waa, request), pool, partial(may_buy, settings))


def _followed(settings: Settings, store: Store, run: Run, as_json: bool) -> Ending:
    """Drive the build, or watch it where another process does."""
    with opened_run(settings.home, run.id) as (reader, _):
        stages = Stages(reader, run, quiet=as_json)
        try:
            taken = take(store, run)
        except RunOver:
            return Ending.SETTLED
        except Owned:
            return stages.watch()
        with alerts_beside(settings, _notice), telemetry_beside(settings, run.id, _notice):
            ending = anyio.run(lambda: drive(settings, store, taken, spectators=[stages], notice=_notice, signals=True))
        stages.tick()
        return ending


def _finished(settings: Settings, store: Store, run: Run, as_json: bool) -> int:
    """Bake what is to be baked, remember the image, delete the pool that was made for it."""
    made = image_build.built(settings, store, run)
    if made is None:
        _tell_failure(settings, store, run)
        _leave_pool(settings, store, run)
        return FAILED
    files, host = made
    written = read(files, f"artifacts/{manifest.NAME}", 1 << 24)
    if written is None:
        raise WrongState(f"run {run.id} built the image, but its manifest is not in {files.where}")
    golden = manifest.parsed(written, f"{files.where}/artifacts/{manifest.NAME}")
    wanted = image_build.payload_of(store, run)
    if wanted["bake"] is not None:
        _bake(settings, store, run, host, wanted["bake"])
    record = StoredImage(image=golden, run=run.id, stored=wanted["to"], baked=wanted["bake"])
    remember(settings.home, record)
    _leave_pool(settings, store, run)
    cost_usd = summarise(store, run, results=False).cost.total_usd
    answer = GoldenImage.of_stored(record, cost_usd=cost_usd)
    size = f"{golden.bytes / 1e9:.1f} GB"
    print_answer(as_json, answer, f"golden image {golden.name} is ready: {size} in {answer.folder}; ${cost_usd:.2f}")
    return 0


def _bake(settings: Settings, store: Store, run: Run, host: str, image: str) -> None:
    """Where it fails the machine stays until its deadline, for its disk is all that there is of the image."""
    pool = store.pools.get(run.policy.pool or "")
    row = next(row for row in store.hosts.of_pool(pool.name) if row.name == host)
    try:
        anyio.run(bake, settings, pool, row, image, _notice)
    except EvalfleetError:
        _notice(
            f"{host} of pool {pool.name} keeps the image until its deadline: the same command bakes it again; "
            f"`evalfleet pool delete {pool.name}` gives it up"
        )
        raise


def _tell_failure(settings: Settings, store: StoreReader, run: Run) -> None:
    failures = store.attempts.last_failures(run.id, 1)
    if failures:
        kept = home_files(settings.home)
        place = (run.id, failures[0]["key"], failures[0]["number"])
        files = kept.get(*place)
        where = kept.folder(*place) if files is None else files.where
        _notice(f"the build failed: {failures[0]['evidence']}; its pictures and logs are in {where}")
    else:
        _notice(f"the build did not begin; `evalfleet report {run.id}` shows why")


def _leave_pool(settings: Settings, store: Store, run: Run) -> None:
    """A pool that was made for the build goes with it."""
    pool = image_build.own_pool(store, run)
    if pool is not None:
        with told_to(_notice):
            anyio.run(partial(pools.reconcile, settings, store, pools.delete(store, pool)))
        _notice(f"pool {pool.name} was made for this build, and is deleted")


class Stages:
    """Prints what the build tells, stage by stage. Implements `Spectator`."""

    def __init__(self, reader: StoreReader, run: Run, *, quiet: bool) -> None:
        self._reader, self._run, self._quiet = reader, run, quiet
        self._after = 0

    def tick(self) -> None:
        for event in self._reader.events.of_run(self._run.id, self._after, 1000):
            self._after = event.number
            for note in () if self._quiet else notes_of(event):
                click.echo(printable(note))

    def watch(self) -> Ending:
        """Look on until the build is over or paused, or we are interrupted."""
        try:
            while self._reader.runs.get(self._run.id).state in (RunState.QUEUED, RunState.RUNNING):
                self.tick()
                time.sleep(_LOOK_S)
            self.tick()
        except KeyboardInterrupt:
            return Ending.INTERRUPTED
        return Ending.SETTLED


def _notice(text: str) -> None:
    click.echo(f"evalfleet: {printable(text)}", err=True)
