"""Controllers of a store: who drives which runs, what waits, and letting a folder join the home of a store."""

from __future__ import annotations

from pathlib import Path

from evalfleet import config
from evalfleet.answers.home import ControllerList, ControllerRow, JoinedHome, OtherDriver, WaitingRun
from evalfleet.errors import InputError
from evalfleet.model import RunState
from evalfleet.report.reader import opened
from evalfleet.report.text import count
from evalfleet.store.controllers import Controller, Liveness
from evalfleet.store.home import place
from evalfleet.store.reader import StoreReader

_MOST = 1000


def join_home(settings: config.Settings) -> JoinedHome:
    """Let the folder of the settings use the store that `[store] url` names. Raises InputError, StoreError."""
    if place.is_there(settings.home):
        raise InputError(f"{settings.home} has a store already; join with another folder: --home DIR")
    if settings.store.url is None:
        raise InputError("[store] url: is not set; name the PostgreSQL server that the home uses")
    joined = join_if_new(settings)
    if joined is None:
        raise InputError(
            f"the store at {settings.store.url} belongs to no home yet; the first command that writes makes one"
        )
    return joined


def join_if_new(settings: config.Settings) -> JoinedHome | None:
    """The same, where the folder is new and the store is that of a home elsewhere; else None, and nothing is changed."""
    if settings.store.url is None or place.is_there(settings.home):
        return None
    from evalfleet.store.home.join import join  # brings the driver of PostgreSQL

    known = join(settings.home, settings.store.url)
    return None if known is None else JoinedHome(folder=str(settings.home), home=known.facts.path)


def list_controllers(home: Path) -> ControllerList:
    """Who drives which runs of a home, and which runs wait for a controller, and why."""
    with opened(home) as store:
        if store is None:
            return ControllerList(controllers=[], others=[], waiting=[], now=0.0)
        return controller_list(store)


def controller_list(store: StoreReader) -> ControllerList:
    with store.snapshot():
        live = [one for one, liveness in store.controllers.all() if liveness is Liveness.ALIVE]
        taken: dict[str, list[str]] = {one.id: [] for one in live}
        for name, row in store.daemon.children("run").items():
            taken.setdefault(row.controller, []).append(name)
        kept = {name for one in live for name in taken[one.id]}
        others: list[OtherDriver] = []
        waiting: list[WaitingRun] = []
        waits = store.controllers.waits()
        for row in store.runs.page(limit=_MOST, states=[RunState.QUEUED, RunState.RUNNING]):
            run = row["run"]
            if run.id in kept:
                continue
            driver = store.runs.driver(run.id)
            if driver is not None:
                others.append(OtherDriver(run=run.id, driver=driver))
            else:
                waiting.append(WaitingRun(run=run.id, name=run.name, why=_why(live, taken, waits.get(run.id, {}))))
        rows = [_row(one, taken[one.id]) for one in live]
        return ControllerList(controllers=rows, others=others, waiting=waiting, now=store.now())


def _why(live: list[Controller], taken: dict[str, list[str]], waits: dict[str, str]) -> str:
    """Why no controller drives a run."""
    if not live:
        return "no controller is there: start `evalfleet controller`, or `evalfleet serve`"
    unable = {one.id for one in live} & waits.keys()
    if len(unable) == len(live):
        return "; ".join(f"{_name(one)}: {waits[one.id]}" for one in live)
    able = [one for one in live if one.id not in unable]
    if all(len(taken[one.id]) >= one.runs for one in able):
        return f"{count(len(able), 'controller')} could drive it, and {'drives' if len(able) == 1 else 'all drive'} as many runs as it may"
    return "a controller takes it in a moment"


def _name(one: Controller) -> str:
    return f"process {one.pid} on {one.host}"


def _row(one: Controller, runs: list[str]) -> ControllerRow:
    return ControllerRow(
        id=one.id, host=one.host, folder=one.path, pid=one.pid, since=one.since, most=one.runs, runs=sorted(runs)
    )
