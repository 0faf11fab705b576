"""The readiness ladder: what must hold before Windows can be used, rung by rung, each with a deadline.

It runs on the machine that has the containers: for `evalfleet prepare` on this one, for attempts on their worker's.
The first rung that does not hold ends the climb, because all others rest on it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from evalfleet.benchmarks.waa.docker import Docker, DockerError
from evalfleet.config import WaaSettings
from evalfleet.core.rung import Rung
from evalfleet.errors import EnvironmentFailed

_GUEST_GRACE_S = 30.0  # for the call itself, beyond what the guest is given
_VIRTUAL = re.compile(r"^flags\s*:.*\b(?:svm|vmx)\b", re.MULTILINE)


class Fallen(EnvironmentFailed):
    """A rung does not hold."""

    def __init__(self, rung: Rung) -> None:
        super().__init__(rung.said())
        self.rung = rung


def host_rungs(settings: WaaSettings) -> Iterator[Rung]:
    """Docker, KVM, image: what all containers of a machine need. Ends with the first that does not hold."""
    docker = Docker(settings.docker)
    yield from _climb(
        [
            partial(_docker, docker),
            partial(_kvm, settings),
            partial(_image, docker, settings),
        ]
    )


def container_rungs(settings: WaaSettings, container: str, *, start: bool) -> Iterator[Rung]:
    """Container, guest. With `start` a container that is not there is made, and one that is stopped is started."""
    docker = Docker(settings.docker)
    yield from _climb(
        [
            partial(_container, docker, settings, container, start=start),
            partial(_guest, docker, settings, container),
        ]
    )


def prepare(
    settings: WaaSettings,
    tell: Callable[[Rung], None],
    say: Callable[[str], None] = lambda _: None,
    secrets: Mapping[str, str] | None = None,
) -> list[Rung]:
    """Climb the whole ladder on this machine, starting what is not up; `tell` hears of each rung as it is tried."""
    tried: list[Rung] = []

    def note(rung: Rung) -> None:
        tried.append(rung)
        tell(rung)

    for rung in host_rungs(settings):
        note(rung)
        if not rung.holds:
            return tried

    def climb(container: str) -> None:
        for rung in container_rungs(settings, container, start=True):
            note(rung)

    with ThreadPoolExecutor(max_workers=len(settings.containers)) as threads:  # Windows takes its time to boot
        list(threads.map(climb, settings.containers))
    return tried


def require(rungs: Iterator[Rung]) -> None:
    """Raises Fallen at the first rung that does not hold."""
    for rung in rungs:
        if not rung.holds:
            raise Fallen(rung)


def kvm_error(cpuinfo: Path = Path("/proc/cpuinfo"), device: Path = Path("/dev/kvm")) -> str | None:
    """Why KVM is not usable; None if it is. That the device is there says nothing: a software KVM has it, too."""
    try:
        flags = cpuinfo.read_text("utf-8", "replace")
    except OSError:
        flags = ""
    if not _VIRTUAL.search(flags):
        there = f", although {device} is there" if device.exists() else ""
        return f"the processor has neither svm nor vmx{there}"
    if not device.exists():
        return f"there is no {device}"
    return None if os.access(device, os.R_OK | os.W_OK) else f"{device} is not writable"


def _climb(rungs: Sequence[Callable[[], Rung]]) -> Iterator[Rung]:
    from dataclasses import replace

    for attempt in rungs:
        begun = time.monotonic()
        rung = attempt()
        yield replace(rung, took_s=round(time.monotonic() - begun, 3))
        if not rung.holds:
            return


def _docker(docker: Docker) -> Rung:
    try:
        return Rung(name="docker", of=None, holds=True, seen=f"version {docker.version()}")
    except DockerError as error:
        remedy = "install Docker, start its daemon, and let this user use it (group docker)"
        return Rung(name="docker", of=None, holds=False, seen=str(error), remedy=remedy)


def _kvm(settings: WaaSettings) -> Rung:
    if not settings.kvm:
        return Rung(name="kvm", of=None, holds=True, seen="not asked for ([waa] kvm = false)")
    error = kvm_error()
    if error is None:
        return Rung(name="kvm", of=None, holds=True, seen="usable")
    remedy = (
        "use a machine with hardware virtualisation (nested, if it is virtual itself), and let this user write /dev/kvm"
    )
    return Rung(name="kvm", of=None, holds=False, seen=error, remedy=remedy)


def _image(docker: Docker, settings: WaaSettings) -> Rung:
    try:
        if docker.has_image(settings.image):
            return Rung(name="image", of=None, holds=True, seen=settings.image)
        if all(docker.is_running(container) for container in settings.containers):
            return Rung(name="image", of=None, holds=True, seen="not needed: all containers run")
        seen = f"there is no {settings.image}"
    except DockerError as error:
        seen = str(error)
    remedy = f"docker pull {settings.image}, or name another with [waa] image"
    return Rung(name="image", of=None, holds=False, seen=seen, remedy=remedy)


def _container(docker: Docker, settings: WaaSettings, container: str, *, start: bool) -> Rung:
    rung = partial(Rung, name="container", of=container)
    try:
        running = docker.is_running(container)
        if running:
            return rung(holds=True, seen="runs")
        if not start:
            seen = "there is none" if running is None else "does not run"
            return rung(holds=False, seen=seen, remedy="start it: evalfleet prepare waa")
        if running is None:
            lacks = _lacks(settings, container)
            if lacks:
                return rung(holds=False, seen=f"there is none, and {lacks[0]}", remedy=lacks[1])
            docker.run(_arguments(settings, container))
        else:
            docker.start(container)
        return rung(holds=True, seen="started")
    except DockerError as error:
        return rung(holds=False, seen=str(error), remedy=f"look at it: docker logs {container}")


def _lacks(settings: WaaSettings, container: str) -> tuple[str, str] | None:
    """What is missing to make the container, and the remedy."""
    start_it = "or start it yourself with WAA's run-local.sh --start-client false"
    if settings.storage is None:
        return "no golden image is configured", f"set [waa] storage to its folder, {start_it}"
    folder = _storage(settings.storage, container)
    if not (folder / "data.img").is_file():
        remedy = f"prepare the golden image with WAA's run-local.sh --prepare-image true (about 20 minutes), {start_it}"
        return f"{folder} has no data.img", remedy
    if len(settings.containers) > 1 and "{container}" not in settings.storage:
        return (
            "one golden image cannot serve several containers",
            'write [waa] storage = "…/{container}" and copy it for each',
        )
    return None


def _storage(storage: str, container: str) -> Path:
    return Path(storage.replace("{container}", container)).expanduser().absolute()


def _arguments(settings: WaaSettings, container: str) -> list[str]:
    """What WAA's own script gives to `docker run`. Without NET_ADMIN the guest has no network and never answers."""
    assert settings.storage is not None
    kvm = ["--device", "/dev/kvm"] if settings.kvm else ["--env", "KVM=N"]
    return [
        *("--name", container, "--platform", "linux/amd64", "--cap-add", "NET_ADMIN", "--stop-timeout", "120", *kvm),
        *("--volume", f"{_storage(settings.storage, container)}:/storage", *settings.run_args),
        *("--entrypoint", "/bin/bash", settings.image, "-c", settings.entry),
    ]


def _guest(docker: Docker, settings: WaaSettings, container: str) -> Rung:
    rung = partial(Rung, name="guest", of=container)
    address = f"{settings.guest}:{settings.guest_port}"
    plan = guest_plan(settings, "wait")
    try:
        news = docker.do(container, settings.python, plan, settings.guest_timeout_s + _GUEST_GRACE_S)
        silent = next((one["guest"] for one in news if "guest" in one), None)
        if silent is None:
            return rung(holds=True, seen=f"{address} answers")
        seen = f"{address} did not answer /probe within {settings.guest_timeout_s:g} s: {silent}"
    except (DockerError, ValueError) as error:
        seen = str(error)
    remedy = (
        f"look at its screen (port 8006) and docker logs {container}; [waa] guest and guest_timeout must fit the image"
    )
    return rung(holds=False, seen=seen, remedy=remedy)


def guest_plan(settings: WaaSettings, do: str) -> dict[str, Any]:
    """What the program inside needs to know of the guest."""
    return {
        "do": do,
        "guest": [settings.guest, settings.guest_port],
        "guest_timeout_s": settings.guest_timeout_s,
        "poll_s": settings.poll_s,
    }
