"""The resources of this host."""

from __future__ import annotations

import os
import re
import socket
import sys

from ..attempt import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DOCKER_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")


def inventory(spool: str) -> dict[str, Any]:
    disk = os.statvfs(spool)
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mb": memory_mb(),
        "disk_free_mb": disk.f_bavail * disk.f_frsize >> 20,
        "kvm": has_kvm(),
        "docker": has_docker(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "hostname": socket.gethostname(),
        "boot_id": process_tree.boot_id(),
    }


def memory_mb() -> int:
    """Memory of the host, or the limit of our control group."""
    match = re.search(rb"^MemTotal:\s+(\d+) kB", process_tree.read("/proc/meminfo"), re.MULTILINE)
    total = int(match.group(1)) >> 10 if match else 0
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = process_tree.read(path).strip()
        if limit.isdigit():
            total = min(total, int(limit) >> 20)
    return total


def has_kvm() -> bool:
    """Whether hardware virtualization works: the device may exist without the processor's feature."""
    flags = re.search(rb"^(flags|Features)\s*:.*\b(svm|vmx)\b", process_tree.read("/proc/cpuinfo"), re.MULTILINE)
    if flags is None:
        return False
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def has_docker() -> bool:
    """Whether a Docker daemon accepts our connections."""
    for path in DOCKER_SOCKETS:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(0.2)
            try:
                client.connect(path)
            except OSError:
                continue
            return True
    return False
