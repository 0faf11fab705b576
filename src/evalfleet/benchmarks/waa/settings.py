"""`[waa]` of the configuration file: where Windows Agent Arena is found, and what differs between its images."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import field

from evalfleet.config.tables import Check, Seconds, SettingsTable, are_variables, is_path

MAX_STEPS = 15  # run.py's own
GUEST_GB = 8.0  # of memory, as WAA's image gives it to Windows
SYSTEM_GB = 1.0  # that the machine itself needs
RESETS = ("close", "restart", "overlay", "snapshot")
OLD_RESET = "close_all"  # the word for "close" until version 0.9; still read
_CONTAINER = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,99}", re.ASCII)


def _are_containers(value: Any) -> bool:
    return 0 < len(value) == len(set(value)) and all(_CONTAINER.fullmatch(name) for name in value)


_PORT: Check = (lambda value: 0 < value < 65536, "must be from 1 to 65535")


class WaaSettings(SettingsTable, frozen=True, kw_only=True):
    """The table."""

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "docker": (is_path, "must be a name or a path"),
        "image": (is_path, "must be a name"),
        "containers": (_are_containers, 'must be different names, such as ["winarena"]'),
        "storage": (is_path, "must be a path"),
        "images": (is_path, "must be a path"),
        "golden": (lambda value: bool(_CONTAINER.fullmatch(value)), "must be a name"),
        "golden_from": (is_path, "must be a folder or an address"),
        "client": (is_path, "must be a path"),
        "python": (is_path, "must be a name or a path"),
        "results": (lambda value: is_path(value) and value.startswith("/"), "must be an absolute path"),
        "guest": (is_path, "must be an address"),
        "guest_port": _PORT,
        "qmp_port": _PORT,
        "screen_port": _PORT,
        "memory_gb": (lambda value: value == 0 or 2 <= value < math.inf, "must be 2 or more, or 0: not checked"),
        "disk_gb": (lambda value: 0 <= value < math.inf, "must be 0 or more"),
        "registry_secret": (
            lambda value: are_variables([value]),
            "must be the name of an environment variable, never the password",
        ),
        "golden_secret": (
            lambda value: are_variables([value]),
            "must be the name of an environment variable, never the signature",
        ),
        "secrets": (are_variables, "must be names of environment variables, never their values"),
        "reset": ((*RESETS, OLD_RESET).__contains__, f"must be one of {', '.join(RESETS)}"),
    }

    docker: str = "docker"  # a name on PATH, or a path
    image: str = "windowsarena/winarena:latest"
    registry_user: str | None = None  # the user who logs in to the image's registry; None: no login
    registry_secret: str = "WAA_REGISTRY_PASSWORD"  # name of the variable with that user's password
    install_docker: bool | None = None  # where it is missing; None: on the hosts of a pool only
    disk_gb: float = 60.0  # free space that an image needs which is not there yet
    containers: tuple[str, ...] = ("winarena",)  # one task at a time in each
    memory_gb: float = GUEST_GB  # of each container's Windows; 0: as WAA has it, and the machine's is not checked
    storage: str | None = None  # host folder of the golden image; {container} stands for the container's name
    images: str = "~/.evalfleet/images/waa"  # host folder of golden images that evalfleet built or brought
    golden: str | None = None  # the one of them that the containers use, where `storage` is not set
    golden_from: str | None = None  # where it is brought from: a folder, or the address of a blob container
    golden_secret: str = "WAA_GOLDEN_SAS"  # name of the variable with the signature of that address
    run_args: tuple[str, ...] = ()  # more for `docker run`
    entry: str = "./entry.sh --prepare-image false --start-client false"
    client: str = "/client"  # these three are inside the container
    python: str = "python"
    results: str = "/tmp/evalfleet"
    guest: str = "20.20.20.21"  # address of Windows, as the container sees it
    guest_port: int = 5000
    qmp_port: int = 7200  # of QEMU's monitor, in the container
    screen_port: int = 8006  # where a host shows the screen of Windows
    flags: tuple[str, ...] = ()  # more for run.py
    secrets: tuple[str, ...] = ()  # variables that an agent needs besides the usual keys
    kvm: bool = True  # False: do without, as with WAA's KVM=N
    reset: str = (
        "close"  # before a task: close windows, restart Windows, start it from the golden disk, restore a snapshot
    )
    pull_timeout_s: Seconds = field(default=3600.0, name="pull_timeout")  # of one try to pull the image
    container_timeout_s: Seconds = field(default=600.0, name="container_timeout")  # until it runs
    guest_timeout_s: Seconds = field(default=300.0, name="guest_timeout")  # until Windows answers
    install_timeout_s: Seconds = field(default=5400.0, name="install_timeout")  # until a new Windows answers
    container_wait_s: Seconds = field(default=1800.0, name="container_wait")  # for one that other attempts use
    shutdown_s: Seconds = field(default=60.0, name="shutdown")  # that Windows is given to shut down
    timeout_s: Seconds | None = field(
        default=None, name="timeout"
    )  # of a task; None: 10 minutes and 80 s for each step
    stall_s: Seconds = field(default=600.0, name="stall")
    poll_s: Seconds = field(default=1.0, name="poll")  # how often to look at the trajectory

    def mark(self, container: str) -> str:
        """What the processes of a container's attempts are known by: the folder in it where they work."""
        return f"{self.results}/{container}"

    @property
    def keeps_writes(self) -> bool:
        """Whether what Windows writes outlives its machine. If not, containers can share one golden disk."""
        return self.reset not in ("overlay", "snapshot")

    @property
    def machine_gb(self) -> float:
        """The memory that a machine with all containers needs; 0: any will do."""
        return len(self.containers) * self.memory_gb + SYSTEM_GB if self.memory_gb else 0.0

    def limit_s(self, max_steps: int | None) -> float:
        """The time limit of a task. Windows and the model take 24 s for a step at the median, and some 70."""
        return 600.0 + 80.0 * (max_steps or MAX_STEPS) if self.timeout_s is None else self.timeout_s
