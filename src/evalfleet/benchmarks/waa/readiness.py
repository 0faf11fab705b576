"""The readiness checks of WAA: what must hold before Windows can be used, each with a deadline.

It runs on the machine that has the containers: for `evalfleet prepare` on this one, for attempts on their worker's.
The first check that does not hold is the last, because all others rest on it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.benchmarks.waa.docker import LABEL, Docker, DockerError
from evalfleet.benchmarks.waa.docker_install import install_docker
from evalfleet.benchmarks.waa.flags import flags_check
from evalfleet.benchmarks.waa.golden.check import golden_check, make_copy, storage_of, wants_golden
from evalfleet.benchmarks.waa.golden.transfer import TransferFailed
from evalfleet.benchmarks.waa.image import PAUSES_S, pull
from evalfleet.benchmarks.waa.settings import GUEST_GB, WaaSettings
from evalfleet.benchmarks.waa.snapshot import is_saved, saved
from evalfleet.core.readiness import ReadinessCheck, Update
from evalfleet.errors import EnvironmentFailed

RECHECK_S = 10.0  # a Windows that works answers in a fraction of it
_DAEMON_S = 60.0  # for a new daemon's first answer
_ASK_S = 0.5
_GUEST_GRACE_S = 30.0  # for the call itself, beyond what the guest is given
SNAPSHOT = "-snapshot"  # QEMU's option: writes go to a temporary file, and are lost with the process
CONTAINER_SCREEN = 8006  # where WAA's image shows the screen
_NO_OVERLAY = (
    f'give it --env "ARGUMENTS=-qmp tcp:0.0.0.0:7200,server,nowait {SNAPSHOT}" when you make it, or set [waa] storage and let '
    "evalfleet make it"
)
_VIRTUAL = re.compile(r"^flags\s*:.*\b(?:svm|vmx)\b", re.MULTILINE)


class CheckFailed(EnvironmentFailed):
    """A check does not hold."""

    def __init__(self, check: ReadinessCheck) -> None:
        super().__init__(check.said())
        self.check = check


class Means(Struct, frozen=True, kw_only=True):
    """What may be used to make a check hold. Without it a machine is only inspected."""

    say: Callable[[Update], None]  # hears what goes on
    secrets: Mapping[str, str]  # by the names of their variables
    pauses_s: Sequence[float] = PAUSES_S  # between tries to pull


def host_checks(settings: WaaSettings, means: Means | None = None) -> Iterator[ReadinessCheck]:
    """Docker, KVM, image, and before them room for it where it may be pulled, and memory for several containers.

    Ends with the first that does not hold.
    """
    docker = Docker(settings.docker)
    yield from _checks(
        [
            *([partial(memory_check, settings, total_gb())] if len(settings.containers) > 1 else []),
            *([partial(_disk, docker, settings)] if means else []),
            partial(_docker, docker, settings, means),
            partial(_kvm, settings),
            partial(_image, docker, settings, means),
            *(
                [partial(golden_check, settings, means and means.say, means.secrets if means else {})]
                if wants_golden(settings)
                else []
            ),
        ]
    )


def container_checks(settings: WaaSettings, container: str, *, start: bool) -> Iterator[ReadinessCheck]:
    """Container, guest. With `start` a container that is not there is made, and one that is stopped is started; with
    `reset = "snapshot"` Windows is saved as soon as it answers."""
    docker = Docker(settings.docker)
    yield from _checks(
        [
            partial(_container, docker, settings, container, start=start),
            partial(_guest, docker, settings, container),
            *([partial(saved, docker, settings, container)] if start and settings.reset == "snapshot" else []),
        ]
    )


def prepare(settings: WaaSettings, tell: Callable[[ReadinessCheck], None], means: Means) -> list[ReadinessCheck]:
    """Run all checks on this machine, bringing and starting what is not there; `tell` hears of each check as it is tried."""
    tried: list[ReadinessCheck] = []

    def note(check: ReadinessCheck) -> None:
        tried.append(check)
        tell(check)

    for check in host_checks(settings, means):
        note(check)
        if not check.holds:
            return tried

    def prepare_one(container: str) -> None:
        holds = True
        for check in container_checks(settings, container, start=True):
            note(check)
            holds = check.holds
        if holds and settings.flags:
            note(flags_check(Docker(settings.docker), settings, container))

    with ThreadPoolExecutor(max_workers=len(settings.containers)) as threads:  # Windows takes its time to boot
        list(threads.map(prepare_one, settings.containers))
    return tried


def recheck(settings: WaaSettings, restarted: Collection[str] = ()) -> list[ReadinessCheck]:
    """Look quickly whether the containers still work while tasks run. One that is dead or silent is restarted, once.

    Args:
        restarted: those that were restarted before; they are not again.

    Returns:
        A check for each container: it holds if Windows answers in it; `restarted` where that was needed.
    """
    docker, quick = Docker(settings.docker), replace(settings, guest_timeout_s=RECHECK_S)
    found: list[ReadinessCheck] = []
    for container in settings.containers:
        check = next(filter(lambda check: not check.holds, container_checks(quick, container, start=False)), None)
        if check is not None and container not in restarted:
            begun = time.monotonic()
            try:
                restart(docker, settings, container)
                check = next(
                    filter(lambda check: not check.holds, container_checks(settings, container, start=True)), None
                )
            except DockerError as error:
                check = replace(check, seen=f"{check.seen}; {error}")
            took_s = round(time.monotonic() - begun, 3)
            check = check or ReadinessCheck(
                name="guest", of=container, holds=True, seen="restarted", restarted=True, took_s=took_s
            )
        found.append(check or ReadinessCheck(name="guest", of=container, holds=True, seen="answers"))
    return found


def restart(docker: Docker, settings: WaaSettings, container: str) -> None:
    """Start Windows anew. It is asked to shut down first, unless nothing that it wrote is kept. Raises DockerError."""
    if settings.keeps_writes and docker.is_running(container):
        mark, port = settings.mark(container), settings.qmp_port
        plan = {"do": "shutdown", "mark": mark, "qmp_port": port, "shutdown_s": settings.shutdown_s}
        with suppress(DockerError, ValueError):  # one that does not hear it is switched off
            docker.do(container, settings.python, plan, settings.shutdown_s + _GUEST_GRACE_S)
    docker.restart(container)


def renew(docker: Docker, settings: WaaSettings, container: str) -> None:
    """Start Windows anew, and save it. Raises DockerError, CheckFailed."""
    restart(docker, settings, container)
    require(_checks([partial(_guest, docker, settings, container), partial(saved, docker, settings, container)]))


def require(checks: Iterator[ReadinessCheck]) -> None:
    """Raises CheckFailed at the first check that does not hold."""
    for check in checks:
        if not check.holds:
            raise CheckFailed(check)


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


def _checks(checks: Sequence[Callable[[], ReadinessCheck]]) -> Iterator[ReadinessCheck]:
    for attempt in checks:
        begun = time.monotonic()
        check = attempt()
        yield replace(check, took_s=round(time.monotonic() - begun, 3))
        if not check.holds:
            return


def total_gb() -> float:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def memory_check(settings: WaaSettings, has_gb: float) -> ReadinessCheck:
    """Whether every container's Windows has its memory: with less, QEMU is killed in the middle of a task."""
    check = partial(ReadinessCheck, name="memory")
    wanted = f"{len(settings.containers)} containers of {settings.memory_gb:g} GB"
    if has_gb >= settings.machine_gb:
        return check(holds=True, seen=f"{has_gb:.0f} GB for {wanted}" if settings.memory_gb else "not checked")
    remedy = "name fewer [waa] containers, give each less ([waa] memory_gb), or take a larger machine"
    return check(holds=False, seen=f"{has_gb:.1f} GB, and {wanted} need {settings.machine_gb:g} GB", remedy=remedy)


def _disk(docker: Docker, settings: WaaSettings) -> ReadinessCheck:
    """Whether there is room for the image, where it is not there yet."""
    check = partial(ReadinessCheck, name="disk")
    folder = "/var/lib/docker"
    try:
        if docker.has_image(settings.image) or all(docker.is_running(one) for one in settings.containers):
            return check(holds=True, seen="no pull is needed")
        folder = os.path.abspath(docker.data_folder() or folder)
    except DockerError:
        pass  # the next check is about that
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < settings.disk_gb:
        with suppress(DockerError):
            docker.sweep(settings.image)
        free_gb = shutil.disk_usage(folder).free / 1e9
    seen = f"{free_gb:.0f} GB free in {folder}"
    if free_gb >= settings.disk_gb:
        return check(holds=True, seen=seen)
    remedy = (
        f"free some space (docker system df shows what Docker uses): {settings.image} needs {settings.disk_gb:g} GB, or what "
        "[waa] disk_gb says"
    )
    return check(holds=False, seen=f"{seen}, after evalfleet's leftovers were removed", remedy=remedy)


def _docker(docker: Docker, settings: WaaSettings, means: Means | None) -> ReadinessCheck:
    check = partial(ReadinessCheck, name="docker")
    remedy = "install Docker, start its daemon, and let this user use it (group docker)"
    try:
        return check(holds=True, seen=f"version {docker.version()}")
    except DockerError as error:
        wanted = means is not None and settings.install_docker and settings.docker == "docker"
        if means is None or not wanted or shutil.which(settings.docker) is not None:
            return check(holds=False, seen=str(error), remedy=remedy)
    try:
        install_docker(means.say)
        return check(holds=True, seen=f"installed, version {_started(docker)}")
    except EnvironmentFailed as error:
        return check(holds=False, seen=f"not installed, and the installation failed: {error}", remedy=remedy)


def _started(docker: Docker) -> str:
    """Its version, as soon as its daemon answers."""
    until = time.monotonic() + _DAEMON_S
    while True:
        try:
            return docker.version()
        except DockerError:
            if time.monotonic() >= until:
                raise
            time.sleep(_ASK_S)


def _kvm(settings: WaaSettings) -> ReadinessCheck:
    if not settings.kvm:
        return ReadinessCheck(name="kvm", holds=True, seen="not asked for ([waa] kvm = false)")
    error = kvm_error()
    if error is None:
        return ReadinessCheck(name="kvm", holds=True, seen="usable")
    remedy = (
        "use a machine with hardware virtualisation (nested, if it is virtual itself), and let this user write /dev/kvm"
    )
    return ReadinessCheck(name="kvm", holds=False, seen=error, remedy=remedy)


def _image(docker: Docker, settings: WaaSettings, means: Means | None) -> ReadinessCheck:
    check = partial(ReadinessCheck, name="image")
    try:
        if docker.has_image(settings.image):
            return check(holds=True, seen=settings.image)
        if all(docker.is_running(container) for container in settings.containers):
            return check(holds=True, seen="not needed: all containers are running")
        seen = f"there is no {settings.image}"
        if means is not None:
            pull(docker, settings, means.say, means.secrets, pauses_s=means.pauses_s)
            return check(holds=True, seen=f"{settings.image}, pulled")
    except DockerError as error:
        seen = str(error)
    remedy = f"docker pull {settings.image}, or name another image with [waa] image; if the registry needs a login, set [waa] registry_user"
    return check(holds=False, seen=seen, remedy=remedy)


def _container(docker: Docker, settings: WaaSettings, container: str, *, start: bool) -> ReadinessCheck:
    check = partial(ReadinessCheck, name="container", of=container)
    try:
        state = docker.state(container)
        if state is not None and not settings.keeps_writes and not _discards(docker, container):
            made_by_us = (settings.storage or settings.golden) and docker.is_ours(container)
            if not made_by_us:
                return check(holds=False, seen=f"its QEMU runs without {SNAPSHOT}", remedy=_NO_OVERLAY)
            if start:
                docker.remove(container)
                state = None
        if state == "running" and start and settings.reset == "snapshot" and not is_saved(docker, settings, container):
            docker.restart(container)  # what it did before is not to be in the snapshot
            return check(holds=True, seen="restarted")
        if state == "running":
            return check(holds=True, seen="runs")
        if not start:
            seen = "there is none" if state is None else "does not run"
            return check(holds=False, seen=seen, remedy="start it: evalfleet prepare waa")
        if state is not None:
            state = _begun(docker, settings, container)
        if state is None:
            make_copy(settings, container)
            lacks = _lacks(settings, container)
            if lacks:
                return check(holds=False, seen=f"there is none, and {lacks[0]}", remedy=lacks[1])
            docker.run(_arguments(settings, container), settings.container_timeout_s)
        if docker.state(container) != "running":
            seen = f"exited at once: {docker.last_words(container) or 'no output'}"
            return check(holds=False, seen=seen, remedy=f"look at it: docker logs {container}")
        return check(holds=True, seen="started")
    except (DockerError, TransferFailed) as error:
        return check(holds=False, seen=str(error), remedy=f"look at it: docker logs {container}")


def _begun(docker: Docker, settings: WaaSettings, container: str) -> str | None:
    """Start a container that is there; None: it could not be started, was ours, and is gone now, to be made anew."""
    try:
        docker.start(container, settings.container_timeout_s)
    except DockerError:
        if storage_of(settings, container) is None or not docker.is_ours(container):
            raise
        docker.remove(container)
        return None
    return "started"


def _lacks(settings: WaaSettings, container: str) -> tuple[str, str] | None:
    """What is missing to make the container, and the remedy."""
    start_it = "or start it yourself with WAA's run-local.sh --start-client false"
    folder = storage_of(settings, container)
    if folder is None:
        remedy = f"build one (evalfleet waa image build NAME) and set [waa] golden, or set [waa] storage to its folder, {start_it}"
        return "no golden image is configured", remedy
    if not (folder / "data.img").is_file():
        remedy = f"prepare the golden image with WAA's run-local.sh --prepare-image true (about 20 minutes), {start_it}"
        return f"{folder} has no data.img", remedy
    several = len(settings.containers) > 1 and settings.storage is not None and "{container}" not in settings.storage
    if several and settings.keeps_writes:
        return (
            "one golden image cannot serve several containers",
            'write [waa] storage = "…/{container}" and make a copy for each container, or set [waa] reset = "overlay"',
        )
    return None


def _discards(docker: Docker, container: str) -> bool:
    """Whether its QEMU throws away what is written to the disk, so that a restart begins with the golden one."""
    return any(one.startswith("ARGUMENTS=") and SNAPSHOT in one for one in docker.environment(container))


def _arguments(settings: WaaSettings, container: str) -> list[str]:
    """What WAA's own script gives to `docker run`. Without NET_ADMIN the guest has no network and never answers."""
    kvm = ["--device", "/dev/kvm"] if settings.kvm else ["--env", "KVM=N"]
    monitor = f"-qmp tcp:0.0.0.0:{settings.qmp_port},server,nowait"
    overlay = ["--env", f"ARGUMENTS={monitor} {SNAPSHOT}"] if not settings.keeps_writes else []
    less = settings.memory_gb not in (0, GUEST_GB)
    memory = ["--env", f"RAM_SIZE={settings.memory_gb:g}G"] if less else []
    place = settings.containers.index(container) if container in settings.containers else 0
    published = any(word.startswith(("-p", "--publish")) for word in settings.run_args)  # a person's own choice
    screen = [] if published else ["--publish", f"127.0.0.1:{settings.screen_port + place}:{CONTAINER_SCREEN}"]
    return [
        *(
            "--name",
            container,
            "--label",
            LABEL,
            "--platform",
            "linux/amd64",
            "--cap-add",
            "NET_ADMIN",
            "--stop-timeout",
            "120",
            *kvm,
            *memory,
            *overlay,
            *screen,
        ),
        *("--volume", f"{storage_of(settings, container)}:/storage", *settings.run_args),
        *("--entrypoint", "/bin/bash", settings.image, "-c", settings.entry),
    ]


def _guest(docker: Docker, settings: WaaSettings, container: str) -> ReadinessCheck:
    check = partial(ReadinessCheck, name="guest", of=container)
    address = f"{settings.guest}:{settings.guest_port}"
    plan = guest_plan(settings, "wait")
    try:
        news = docker.do(container, settings.python, plan, settings.guest_timeout_s + _GUEST_GRACE_S)
        silent = next((one["guest"] for one in news if "guest" in one), None)
        if silent is None:
            return check(holds=True, seen=f"{address} answers")
        seen = f"{address} did not answer /probe within {settings.guest_timeout_s:g} s: {silent}"
    except (DockerError, ValueError) as error:
        seen = str(error)
    remedy = (
        f"look at its screen (port 8006) and docker logs {container}; [waa] guest and guest_timeout must fit the image"
    )
    return check(holds=False, seen=seen, remedy=remedy)


def guest_plan(settings: WaaSettings, do: str) -> dict[str, Any]:
    """What the program inside needs to know of the guest."""
    return {
        "do": do,
        "guest": [settings.guest, settings.guest_port],
        "qmp_port": settings.qmp_port,
        "guest_timeout_s": settings.guest_timeout_s,
        "poll_s": settings.poll_s,
    }
