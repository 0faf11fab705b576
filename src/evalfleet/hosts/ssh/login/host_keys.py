"""Host keys: which are known, and what happens to one that is not.

A key is accepted if the hosts file names it, or else if it is in the user's known_hosts or in evalfleet's own. A new key is
learned only with `trust_first_use` and only for a host without any known key: it is saved in evalfleet's file and reported.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs
from msgspec import Struct

from evalfleet.errors import HostRefused
from evalfleet.hosts.access import USERS
from evalfleet.hosts.ssh.login.hosts_file import Login


class KnownKeys(Struct, frozen=True):
    """The known keys of one host."""

    keys: Sequence[asyncssh.SSHKey] = ()
    authorities: Sequence[asyncssh.SSHKey] = ()
    revoked: Sequence[asyncssh.SSHKey] = ()
    source: str = ""  # where the keys stand

    @property
    def is_empty(self) -> bool:
        return not (self.keys or self.authorities)

    def algorithms(self) -> list[str]:
        """Key algorithms to offer: the known ones first, so that the host shows a key that can be compared, then all others."""
        own = [name for key in self.keys for name in key.sig_algorithms]
        names = (get_default_certificate_algs() if self.authorities else []) + own + get_default_public_key_algs()
        return [name.decode() for name in dict.fromkeys(names)]


class HostKeyCheck(asyncssh.SSHClient):
    """Receives the key that a host offers if it is not among the known ones."""

    def __init__(self, *, lets_in: bool) -> None:
        self.lets_in = lets_in
        self.shown: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        del host, addr, port
        self.shown = key
        return self.lets_in


class HostKeys:
    """The known hosts of one home."""

    def __init__(
        self, learned: Path, others: Iterable[Path] = USERS, *, trust_first_use: bool, notice: Callable[[str], None]
    ) -> None:
        """
        Args:
            learned: evalfleet's own file, written by `learn`.
            others: files of the user and the system; read only.
            notice: called for every key that is learned.
        """
        self._learned = learned
        self._others = tuple(others)
        self._notice = notice
        self._trust_first_use = trust_first_use

    def trust(self, login: Login, given: str | None, others: Iterable[Path] | None = None) -> KnownKeys:
        """The known keys of a host.

        Args:
            given: the key from the hosts file; if given, no other key is accepted.
            others: used in place of the files of the user and the system.
        """
        if given is not None:
            try:
                return KnownKeys((asyncssh.import_public_key(given),), source="the hosts file")
            except asyncssh.KeyImportError as error:
                raise HostRefused(f"{login}: host_key in the hosts file cannot be used: {error}") from error
        found: list[KnownKeys] = []
        for path in (self._learned, *(self._others if others is None else others)):
            keys, authorities, revoked, *_ = _entries(path.expanduser()).match(marker(login), "", None)
            found.append(KnownKeys(keys, authorities, revoked, str(path)))
        sources = ", ".join(one.source for one in found if not one.is_empty)
        return KnownKeys(
            [key for one in found for key in one.keys],
            [key for one in found for key in one.authorities],
            [key for one in found for key in one.revoked],
            sources,
        )

    def check(self, trust: KnownKeys) -> HostKeyCheck:
        return HostKeyCheck(lets_in=self._trust_first_use and trust.is_empty)

    def learn(self, login: Login, key: asyncssh.SSHKey, others: Iterable[Path] | None = None) -> None:
        """Save the key of a host that proved to own it. Does nothing if another process was faster."""
        self._learned.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._learned, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if not self.trust(login, None, others).is_empty:
                return
            os.write(fd, f"{marker(login)} {_written(key)}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        self._notice(
            f"{login}: its key is trusted from now on: {fingerprint(key)} (first use; saved in {self._learned})"
        )


def marker(login: Login) -> str:
    """The host's name in a known_hosts file."""
    return login.address if login.port in (None, 22) else f"[{login.address}]:{login.port}"


def fingerprint(key: asyncssh.SSHKey) -> str:
    return f"{key.get_algorithm()} {key.get_fingerprint()}"


def refusal(login: Login, trust: KnownKeys, shown: asyncssh.SSHKey | None, why: str) -> HostRefused:
    """The error for a host whose key is not accepted."""
    if shown is None:
        return HostRefused(f"{login}: its key is refused: {why}")
    if trust.is_empty:
        return HostRefused(
            f"{login}: its key is not known: it offers {fingerprint(shown)}; if that is correct, set "
            f'host_key = "{_written(shown)}" in the hosts file, connect with ssh once, or use --trust-first-use'
        )
    known = ", ".join(fingerprint(key) for key in trust.keys) or "a certificate of a known authority"
    return HostRefused(
        f"{login}: its key has changed: it offers {fingerprint(shown)}, but {known} is known "
        f"(from {trust.source}); the connection may be intercepted. If the machine was really reinstalled, write the new key there, or "
        f"remove the old one with `ssh-keygen -R '{marker(login)}' -f FILE`"
    )


def _written(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


def _entries(path: Path) -> asyncssh.SSHKnownHosts:
    """The entries of a known_hosts file. Unknown lines are skipped, as ssh does."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return asyncssh.SSHKnownHosts()
    except OSError as error:
        raise HostRefused(f"{path}: cannot be read: {error.strerror}; make it readable, or remove it") from error
    entries = asyncssh.SSHKnownHosts()
    for line in text.splitlines():
        try:
            entries.load(line)
        except ValueError:
            continue
    return entries
