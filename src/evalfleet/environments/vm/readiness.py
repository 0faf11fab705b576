"""Waiting for the agent of a guest, and the evidence where it does not come."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from evalfleet.environments.desktop.client import DesktopClient
from evalfleet.environments.vm.machine import Machine
from evalfleet.errors import EnvironmentFailed, VmError

PICTURE = "vm-screen.png"
_PROBE_S = 5.0  # for one answer while the guest starts
_ASK_AGAIN_S = 0.02


def wait_for_agent(machine: Machine, token: str, *, timeout_s: float, evidence: Path | None) -> float:
    """Return when the guest's agent says that it is ready, and how many seconds that took.

    Args:
        evidence: a folder that gets a picture of the guest's screen where the agent does not come in time.

    Raises:
        VmError: QEMU ended, or the time is over; says what the agent waits for, and what the guest wrote and showed last.
    """
    begun = time.monotonic()
    deadline = begun + timeout_s
    client = DesktopClient(f"http://127.0.0.1:{machine.port}", token, timeout_s=_PROBE_S)
    while True:
        try:
            probe = client.probe()
            if probe.ready:
                return time.monotonic() - begun
            why = f"it waits for {probe.waits_for}"
        except EnvironmentFailed as error:
            why = str(error)
        if (death := machine.death()) is not None:
            raise VmError(death)
        if time.monotonic() > deadline:
            raise VmError(
                f"the guest agent was not ready within {timeout_s:g} s: {why}{_console(machine)}{_picture(machine, evidence)}"
            )
        time.sleep(_ASK_AGAIN_S)


def _console(machine: Machine) -> str:
    line = machine.console()
    return f"; the guest's serial console: {line}" if line else ""


def _picture(machine: Machine, evidence: Path | None) -> str:
    if evidence is None:
        return ""
    with contextlib.suppress(VmError, OSError):
        (evidence / PICTURE).write_bytes(machine.screen())
        return f"; a picture of its screen: {PICTURE}"
    return ""
