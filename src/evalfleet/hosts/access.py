"""How the hosts of a pool are reached, for commands that act on the machines themselves. Needs no SSH library."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from msgspec import Struct

from evalfleet.errors import BackendError, HostUnreachable, RunnerRefused
from evalfleet.hosts.ssh.login.hosts_file import SshHostSpec

USERS = (Path("~/.ssh/known_hosts"), Path("/etc/ssh/ssh_known_hosts"))
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class ReachableHost(Struct, frozen=True, kw_only=True):
    """A host that can be reached now."""

    pool: str
    spec: SshHostSpec
    known_hosts: tuple[Path, ...] = USERS  # files of the user and the system, only read
    trust_first_use: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def slots(self) -> int:
        return self.spec.slots


class UnavailableHost(Struct, frozen=True, kw_only=True):
    """A host of a pool that cannot be reached now, such as a stopped one."""

    pool: str
    name: str
    slots: int
    why: str  # and what to do: "is stopped; `evalfleet pool start lab` starts it"


def workers_of(host: ReachableHost | UnavailableHost) -> list[str]:
    """The names of its slots."""
    return [f"{host.name}-{turn}" for turn in range(1, host.slots + 1)]


def host_of_worker(
    worker: str, hosts: Sequence[ReachableHost | UnavailableHost]
) -> ReachableHost | UnavailableHost | None:
    """The host of that name, or else the one that has the worker of that name."""
    by_name = {host.name: host for host in hosts}
    by_worker = {name: host for host in hosts for name in workers_of(host)}
    return by_name.get(worker) or by_worker.get(worker)


def present(host: ReachableHost | UnavailableHost) -> ReachableHost:
    """Raises HostUnreachable for a host that is not there now."""
    if isinstance(host, UnavailableHost):
        raise HostUnreachable(f"host {host.name} {host.why}")
    return host


def pause_s(failures: int, rng: Random) -> float:
    """The pause before the next try after this many failures; random, so that waiting clients do not retry at once."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 10)) * rng.uniform(0.75, 1.0)


@contextmanager
def name_in_errors(name: str) -> Generator[None]:
    """Say in every error which host it was."""
    try:
        yield
    except RunnerRefused as error:  # and those derived from it, which are made otherwise
        raise RunnerRefused(f"host {name}: {error}") from error
    except BackendError as error:
        raise type(error)(f"host {name}: {error}") from error
