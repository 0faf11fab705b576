"""A snapshot of the running Windows in a container, memory and disk, that tasks begin with: `[waa] reset = "snapshot"`.

QEMU keeps it in the temporary file that takes the writes of Windows, so that it needs `-snapshot` and lives as long as QEMU.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from evalfleet.benchmarks.waa.docker import QUICK_S, Docker, DockerError
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import ReadinessCheck

SNAPSHOT_S = 330.0  # to write or read the memory of Windows


def restore(docker: Docker, settings: WaaSettings, container: str) -> bool:
    """Put Windows back to its snapshot, memory and disk. False: there is none, or QEMU cannot. Raises DockerError."""
    if not docker.is_running(container):
        return False
    docker.do(container, settings.python, {"do": "end", "mark": settings.mark(container)}, QUICK_S)
    answer = docker.ask(container, settings.python, {"load": settings.qmp_port}, SNAPSHOT_S)
    return "error" not in answer


def saved(docker: Docker, settings: WaaSettings, container: str) -> ReadinessCheck:
    """Save the Windows that was just started, for tasks to begin with."""
    check = partial(ReadinessCheck, name="snapshot", of=container)
    if is_saved(docker, settings, container):
        return check(holds=True, seen="there is one")
    try:
        news = docker.ask(container, settings.python, {"save": settings.qmp_port}, SNAPSHOT_S)
    except (DockerError, ValueError) as error:
        news = {"error": str(error)}
    if "error" not in news:
        return check(holds=True, seen="saved")
    remedy = 'this container\'s QEMU cannot save a running Windows: set [waa] reset = "overlay", which boots the golden disk anew'
    return check(holds=False, seen=news["error"], remedy=remedy)


def is_saved(docker: Docker, settings: WaaSettings, container: str) -> bool:
    with suppress(DockerError, ValueError):
        return bool(docker.ask(container, settings.python, {"saved": settings.qmp_port}, QUICK_S).get("saved"))
    return False
