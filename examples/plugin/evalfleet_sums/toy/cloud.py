"""A cloud in a folder: each machine is a folder with a JSON file, and a process while it is on (`machine`)."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    LABEL_POOL,
    Creation,
    Endpoint,
    Kind,
    MachineSpec,
    MachineView,
    Offering,
    Price,
    Progress,
    Quota,
    Resource,
    Verb,
    expires_text,
)
from evalfleet_sums.toy import machine

GRACE_S = 3600.0  # the deadline of a machine that is started after its own has passed

SSHD = """HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
SetEnv HOME={folder}/home EVALFLEET_SSH_HOST_KEY={folder}/host_key EVALFLEET_SLOT_LOCKS={folder}/slots
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
"""


class ToyCloud:
    """Implements `Cloud`."""

    poll_s = 0.05

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # Machines

    async def list(self, pool: str | None = None) -> Sequence[MachineView]:
        names = sorted(path.parent.name for path in self._folder.glob("*/machine.json"))
        views = [view for name in names if (view := await self.view(name)) is not None]
        return [view for view in views if pool in (None, view.labels.get(LABEL_POOL))]

    async def view(self, name: str) -> MachineView | None:
        with self._alone():
            kept = self._read(name)
            if kept is None:
                return None
            if kept["power"] == "deleted" and not self._runs(name):
                shutil.rmtree(self._folder / name, ignore_errors=True)
                return None
            return MachineView(
                name=name,
                region=kept["region"],
                size=kept["size"],
                spot=kept["spot"],
                labels=kept["labels"],
                stage=Stage.DELETING if kept["power"] == "deleted" else Stage.MADE,
                power=self._power(name, kept),
            )

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        with self._alone():
            if (self._folder / spec.name).exists():
                return Creation(continuation=None)
            fresh = self._folder / f".{spec.name}"  # what a crash leaves half done is begun again
            shutil.rmtree(fresh, ignore_errors=True)
            (fresh / "home").mkdir(parents=True)
            (fresh / "host_key").touch(mode=0o600)
            (fresh / "host_key").write_text(spec.host_key.private)
            (fresh / "authorized_keys").write_text(spec.login_key + "\n")
            (fresh / "sshd_config").write_text(SSHD.format(folder=self._folder / spec.name))
            kept = {"region": spec.region, "size": spec.size, "spot": spec.spot, "labels": spec.labels()}
            (fresh / "machine.json").write_text(json.dumps({**kept, "stops_at": stops_at, "power": "on"}))
            fresh.rename(self._folder / spec.name)
            self._boot(spec.name)
        return Creation(continuation="create")

    async def start(self, name: str) -> str:
        with self._alone():
            stops_at = self._found(name)["stops_at"]
            now = time.time()
            self._change(name, power="on", stops_at=stops_at if stops_at > now else now + GRACE_S)
            self._boot(name)
        return "start"

    async def stop(self, name: str) -> str:
        with self._alone():
            self._change(name, power="off")
        return "stop"

    async def delete(self, name: str) -> str | None:
        with self._alone():
            kept = self._read(name)
            if kept is None:
                return None
            if kept["power"] != "deleted":
                self._change(name, power="deleted")
        return "delete"

    async def poll(self, verb: Verb, name: str, continuation: str, offering: Offering | None = None) -> Progress:
        view = await self.view(name)
        if verb is Verb.DELETE:
            return self._progress(view is None)
        if view is None:
            return Progress(done=True, forgotten=True)
        if verb is Verb.STOP:
            return self._progress(view.power is Power.RELEASED)
        if view.power is Power.RELEASED:
            problem = _problem(
                Cause.PROVISIONING, f"machine {name} went off as it was started; its console log says why"
            )
            return Progress(done=True, problem=problem)
        return self._progress(view.power is Power.RUNNING)

    async def endpoint(self, name: str) -> Endpoint | None:
        view = await self.view(name)
        if view is None or view.power is not Power.RUNNING:
            return None
        return Endpoint(address="127.0.0.1", port=int((self._folder / name / "port").read_text()))

    async def log(self, name: str) -> str:
        try:
            return (self._folder / name / "console.log").read_bytes()[-65536:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    # Deadlines: a part of the machine, which comes and goes with it

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        with self._alone():
            self._change(name, stops_at=at)

    async def has_deadline(self, name: str, at: float) -> bool:
        kept = self._read(name)
        return kept is not None and abs(kept["stops_at"] - at) < 1.0

    async def drop_deadline(self, name: str) -> None:
        pass

    async def extend(self, view: MachineView, expires_at: float) -> None:
        with self._alone():
            labels = self._found(view.name)["labels"]
            self._change(view.name, labels={**labels, LABEL_EXPIRES: expires_text(expires_at)})

    # What is around machines: nothing

    async def resources(self, pool: str | None = None) -> Sequence[Resource]:
        return [_resource(view) for view in await self.list(pool)]

    async def delete_resource(self, resource: Resource) -> None:
        pass

    async def prepare_region(self, pool: str, region: str, owner: str) -> None:
        pass

    async def clean_region(self, pool: str, region: str) -> None:
        pass

    async def image(self, name: str) -> str | None:
        return None

    # Money

    def price(self, offering: Offering, disk_gb: int) -> Price:
        return Price(usd_per_hour=0.01, kept_usd_per_hour=0.0)

    async def quota(self, offering: Offering) -> Quota | None:
        return None

    # Files

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Only one process at a time changes the cloud."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads((self._folder / name / "machine.json").read_text())
        except FileNotFoundError:
            return None

    def _found(self, name: str) -> dict[str, Any]:
        kept = self._read(name)
        if kept is None or kept["power"] == "deleted":
            raise Refusal(_problem(Cause.NOT_FOUND, f"there is no machine {name}"))
        return kept

    def _change(self, name: str, **changes: object) -> None:
        fresh = self._folder / name / "machine.new"
        fresh.write_text(json.dumps({**self._found(name), **changes}))
        fresh.replace(self._folder / name / "machine.json")

    def _boot(self, name: str) -> None:
        """The new process inherits the lock that we take, so that it counts as on from this moment."""
        folder = self._folder / name
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # it is on
            (folder / "port").unlink(missing_ok=True)
            program = [sys.executable, "-I", "-S", machine.__file__, str(folder), str(lock)]
            with (folder / "console.log").open("ab") as log:
                streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                subprocess.run(["setsid", "--fork", *program], pass_fds=(lock,), env={}, check=True, **streams)
        finally:
            os.close(lock)

    def _runs(self, name: str) -> bool:
        try:
            with (self._folder / name / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _power(self, name: str, kept: Mapping[str, Any]) -> Power:
        if not self._runs(name):
            return Power.RELEASED
        if kept["power"] != "on" or kept["stops_at"] <= time.time():
            return Power.STOPPING
        return Power.RUNNING if (self._folder / name / "port").exists() else Power.STARTING

    def _progress(self, done: bool) -> Progress:
        return Progress(done=done, look_again_s=0.0 if done else self.poll_s)


def _resource(view: MachineView) -> Resource:
    known = {"name": view.name, "machine": view.name, "region": view.region, "labels": view.labels}
    return Resource(id=view.name, kind=Kind.MACHINE, type="toy/machine", **known)


def _problem(cause: Cause, message: str) -> Problem:
    return Problem(cause=cause, action=Action.GIVE_UP, message=message)
