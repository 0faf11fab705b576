"""The environment `vm`: a virtual machine for one attempt, cloned from a golden image in about a second.

A clone maps the memory of the prepared machine privately, so clones share what they do not write to, and has an overlay of its own
over the prepared disk. Any qcow2 image will do whose agent speaks the guest protocol; `docs/howto/vm-environment.md` says how.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from evalfleet.environments.base import Probe, Size
from evalfleet.environments.desktop.client import DesktopClient
from evalfleet.environments.desktop.x11.windows import Window
from evalfleet.environments.vm import golden as images
from evalfleet.environments.vm import kept as guests
from evalfleet.environments.vm.kept import Kept
from evalfleet.environments.vm.machine import Machine, Memory, fresh_disk
from evalfleet.environments.vm.prepared import Prepared, prepared
from evalfleet.environments.vm.readiness import wait_for_agent
from evalfleet.environments.vm.settings import Accelerator, Reset, VmSettings
from evalfleet.errors import EnvironmentFailed, VmError

_REQUEST_S = 120.0  # an emulated processor is slow
_PROBE_S = 10.0
_EMULATED = 10  # how many times slower an emulated processor is
_SAVE_S = 120.0
_DEATH_S = 0.5  # at most, between the end of a connection and that of QEMU


@contextmanager
def launched(settings: VmSettings, *, view: Path | None = None, evidence: Path | None = None) -> Generator[Vm]:
    """Start a guest, and end it. The image is prepared first where this host has not done so yet.

    Args:
        view: where to make a socket by which people can watch and use it; None: nobody can.
        evidence: a folder for a picture of the screen of a guest that does not come up.

    Raises:
        InputError: no image is named.
        EnvironmentFailed: it could not be started; says why.
    """
    golden = images.find(settings)
    with ExitStack() as held:
        found = held.enter_context(prepared(golden, evidence=evidence))
        kept = None
        if settings.reset in (Reset.RESTART, Reset.CLOSE):
            kept = held.enter_context(guests.taken(found))
        vm = Vm(found, kept, view=view, evidence=evidence)
        try:
            yield vm
        finally:
            vm.close()


class Vm(DesktopClient):
    """Implements `Environment`, and `WindowedDesktop` where the guest's agent does. Must be closed; `launched` does that.

    Args:
        kept: the files of a guest that goes on from one attempt to the next.
    """

    def __init__(
        self, found: Prepared, kept: Kept | None, *, view: Path | None = None, evidence: Path | None = None
    ) -> None:
        self._prepared, self._kept, self._view, self._evidence = found, kept, view, evidence
        self._settings = found.golden.settings
        self._screen = Size(width=0, height=0)
        self._machine: Machine | None = None
        super().__init__("http://127.0.0.1:1", found.token_text(), timeout_s=_REQUEST_S)
        self._start()
        if self._settings.reset is Reset.CLOSE:
            self.close_windows()

    @property
    def pid(self) -> int:
        """QEMU's process."""
        assert self._machine is not None
        return self._machine.pid

    def probe(self) -> Probe:
        try:
            told = self._guest(_PROBE_S).probe()
        except EnvironmentFailed as error:
            return Probe(kind="vm", ready=False, waits_for=self._death() or str(error), screen=self._screen)
        self._screen = told.screen
        return Probe(kind="vm", ready=told.ready, waits_for=told.waits_for, screen=told.screen)

    # Limits are those of a real processor; an emulated one gets more time.

    def rest(self, *, limit_s: float) -> None:
        super().rest(limit_s=limit_s * self._slowness)

    def wait_for_windows(
        self, condition: Callable[[list[Window]], bool], what: str, *, timeout_s: float = 60.0
    ) -> list[Window]:
        return super().wait_for_windows(condition, what, timeout_s=timeout_s * self._slowness)

    @property
    def _slowness(self) -> int:
        return _EMULATED if self._prepared.golden.accelerator is Accelerator.TCG else 1

    def screen(self) -> bytes:
        """Return the screen of the machine itself as PNG, without the agent's help."""
        if self._machine is None:
            raise VmError("the guest is switched off")
        return self._machine.screen()

    def reset(self) -> None:
        """Return to what an attempt begins with, as the setting `reset` says; for "close" only the windows are closed."""
        mode = self._settings.reset
        if mode is Reset.CLOSE and self._machine is not None and self._machine.death() is None:
            self.close_windows()
            return
        if mode is Reset.RESTART:
            self._shut_down()
        self._end()
        self._start()

    def close(self) -> None:
        """End it. A guest that goes on is saved first. May be called twice."""
        try:
            if self._settings.reset is Reset.CLOSE:
                self._save()
            elif self._settings.reset is Reset.RESTART:
                self._shut_down()
        finally:
            self._end()

    def _start(self) -> None:
        begin = {
            Reset.SNAPSHOT: self._clone,
            Reset.OVERLAY: self._boot_golden,
            Reset.RESTART: self._boot_kept,
            Reset.CLOSE: self._resume_kept,
        }
        mode = self._settings.reset
        booted = mode in (Reset.OVERLAY, Reset.RESTART)
        limit_s = self._settings.boot_timeout_s if booted else self._settings.start_timeout_s
        self._machine = begin[mode]()
        try:
            wait_for_agent(self._machine, self._token, timeout_s=limit_s, evidence=self._evidence)
        except BaseException:
            self._end()
            raise
        self._port = self._machine.port

    def _clone(self) -> Machine:
        found = self._prepared
        memory = Memory(path=found.memory, shared=False)
        disk = fresh_disk(found.empty)
        return Machine(
            found.golden,
            disk=disk,
            backing=found.disk,
            token=found.token,
            memory=memory,
            state=found.state,
            view=self._view,
        )

    def _boot_golden(self) -> Machine:
        found = self._prepared
        disk = fresh_disk(found.empty)
        return Machine(found.golden, disk=disk, backing=found.golden.disk, token=found.token, view=self._view)

    def _boot_kept(self) -> Machine:
        found, kept = self._prepared, self._kept
        assert kept is not None
        if not kept.disk.exists():
            kept.renew(found, running=False)
        disk = kept.disk.open("r+b")
        return Machine(found.golden, disk=disk, backing=found.golden.disk, token=found.token, view=self._view)

    def _resume_kept(self) -> Machine:
        found, kept = self._prepared, self._kept
        assert kept is not None
        if not kept.state.exists():  # there was none, or it was killed
            kept.renew(found, running=True)
        used = kept.state.with_name("state.used")  # from now on memory and disk do not fit it any more
        kept.state.rename(used)
        memory = Memory(path=kept.memory, shared=True)
        return Machine(
            found.golden,
            disk=kept.disk.open("r+b"),
            backing=found.disk,
            token=found.token,
            memory=memory,
            state=used,
            view=self._view,
        )

    def _save(self) -> None:
        """Keep the running guest for the next attempt; one that does not work is not kept."""
        assert self._kept is not None
        if self._machine is None or self._machine.death() is not None:
            return
        new = self._kept.state.with_name("state.new")
        with contextlib.suppress(VmError):
            self._machine.save(new, timeout_s=_SAVE_S)
            new.rename(self._kept.state)

    def _shut_down(self) -> None:
        if self._machine is not None and self._machine.death() is None:
            with contextlib.suppress(VmError):
                self._machine.shut_down(timeout_s=self._settings.shutdown_timeout_s)

    def _end(self) -> None:
        if self._machine is not None:
            self._machine.end()

    def _guest(self, timeout_s: float) -> DesktopClient:
        return DesktopClient(f"http://127.0.0.1:{self._port}", self._token, timeout_s=timeout_s)

    def _death(self, *, patience_s: float = 0.0) -> str | None:
        return self._machine.death(patience_s=patience_s) if self._machine is not None else "the guest is switched off"

    def _ask(self, method: str, path: str, body: bytes = b"", *, more_s: float = 0.0) -> bytes:
        """Where a request fails because QEMU ended, say that."""
        try:
            return super()._ask(method, path, body, more_s=more_s)
        except EnvironmentFailed as error:
            death = self._death(patience_s=_DEATH_S)
            raise (VmError(death) if death else error) from None
