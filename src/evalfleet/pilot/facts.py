"""What a node is, as its pilot finds it: nothing is assumed, everything is tried."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KVM_GET_API_VERSION = 0xAE00
KVM_CREATE_VM = 0xAE01
KVM_API = 12
DOCKER_S = 20.0


def node_facts(inventory: dict[str, Any]) -> dict[str, Any]:
    """The facts in `hello`: those that the runner's inventory has, and what only the pilot tries."""
    kvm = kvm_trouble()
    images, docker = docker_images()
    known = ("cpus", "memory_mb", "disk_free_mb", "hostname", "python", "gpus")
    return dict(
        {name: inventory.get(name) for name in known},
        kvm=kvm is None,
        kvm_trouble=kvm,
        docker=docker is None,
        docker_trouble=docker,
        images=images,
        kernel=platform.release(),
    )


def kvm_trouble(path: str = "/dev/kvm") -> str | None:
    """Why no virtual machine can be made here; None if one was made."""
    try:
        device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        known = {errno.ENOENT: "there is no %s" % path, errno.EACCES: "%s may not be opened" % path}
        return known.get(error.errno or 0, "%s: %s" % (path, error.strerror))
    try:
        version = fcntl.ioctl(device, KVM_GET_API_VERSION, 0)
        if version != KVM_API:
            return "%s speaks version %d, not %d" % (path, version, KVM_API)
        os.close(fcntl.ioctl(device, KVM_CREATE_VM, 0))
    except OSError as error:
        return "%s makes no virtual machine: %s" % (path, error.strerror)
    finally:
        os.close(device)
    return None


def docker_images() -> tuple[list[str], str | None]:
    """The images that Docker has here, and why it cannot be used; None if it can."""
    command = ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DOCKER_S,
            check=False,
        )
    except FileNotFoundError:
        return [], "docker is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], "docker does not answer: %s" % error
    if done.returncode:
        return [], (done.stderr.decode(errors="replace").strip().splitlines() or ["docker failed"])[-1]
    return sorted(set(done.stdout.decode(errors="replace").split())), None
