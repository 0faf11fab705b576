"""The hosts file, a public format: TOML with one `[[host]]` per machine and `[defaults]` for shared values. ::

[defaults]
user = "eval"
key = "~/.ssh/id_ed25519"

[[host]]
name = "box1"
address = "10.0.0.4"
slots = 2
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import tomllib
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from evalfleet.config.core_tables import MOST_SLOTS
from evalfleet.errors import HostsFileError
from evalfleet.validation import explain, quoted, seconds, sentence, suggestion

DEFAULT_FOLDER = "~/.evalfleet/spool-{hostname}"
DEFAULT_CONNECT_S = 20.0
LARGEST = 4 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
_JUMP = re.compile(r"(?:(?P<user>[^@\s:]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@\s:\[\]]+)(?::(?P<port>\d{1,5}))?")
_HINTS = {"connect_timeout": 'expected a duration such as "20s"'}

Duration = str | float | None


class Login(Struct, frozen=True, kw_only=True):
    """Address, port and user of a login."""

    address: str
    port: int | None = None  # None: 22, or what the ssh configuration says
    user: str | None = None  # None: the user of this process

    def __str__(self) -> str:
        port = "" if self.port in (None, 22) else f":{self.port}"
        return f"{self.user}@{self.address}{port}" if self.user else f"{self.address}{port}"


class SshHostSpec(Struct, frozen=True, kw_only=True):
    """One machine of a hosts file, checked."""

    name: str
    login: Login
    key: Path | None = None  # None: the agent's keys and the user's default ones
    host_key: str | None = None  # "type base64"; None: what is known already
    jump: Login | None = None
    proxy: str | None = None  # a command that carries the connection; of machines of clouds
    slots: int = 1
    price_usd_per_hour: float = 0.0  # of the machine, all of its slots
    memory_mb: int | None = None  # None: what the machine has
    python: str | None = None  # None: looked for
    folder: str = DEFAULT_FOLDER
    connect_s: float = DEFAULT_CONNECT_S
    ssh_config: bool = False  # what is left open here is looked up in the user's ssh configuration


class _Shared(msgspec.Struct, forbid_unknown_fields=True):
    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    slots: int | None = None
    price_usd_per_hour: float | None = None
    memory_mb: int | None = None
    python: str | None = None
    folder: str | None = None
    connect_timeout: Duration = None
    ssh_config: bool | None = None


class _HostRow(_Shared, forbid_unknown_fields=True, kw_only=True):
    address: str
    name: str | None = None
    host_key: str | None = None


class _Problem(Exception):
    """ "key: what is wrong, and what to do", without a full stop."""


def load(path: Path) -> list[SshHostSpec]:
    """Read and check a hosts file. Raises HostsFileError, which names the file, the host and key, what is wrong and what to do."""
    return _hosts(_parse(_content(path), str(path)), str(path), path.absolute().parent)


def read(text: str, shown: str, folder: Path) -> list[SshHostSpec]:
    """Check the text of a hosts file.

    Args:
        shown: the file's name in messages.
        folder: relative paths of keys start here.
    """
    return _hosts(_parse(text.encode("utf-8", "replace"), shown), shown, folder)


def _hosts(document: dict[str, Any], shown: str, folder: Path) -> list[SshHostSpec]:
    for key in document:
        if key not in ("host", "defaults"):
            raise HostsFileError(sentence(f"{shown}: unknown key {quoted(key)}{suggestion(key, ('host', 'defaults'))}"))
    rows = document.get("host", [])
    if not isinstance(rows, list):
        raise HostsFileError(f"{shown}: [host] has single brackets; write [[host]] above each host.")
    shared = _defaults(shown, document.get("defaults", {}))
    hosts: list[SshHostSpec] = []
    for number, row in enumerate(cast("list[Any]", rows), 1):
        try:
            host = _spec(_row(row, shared), folder)
            _require_other(host, hosts)
        except _Problem as problem:
            raise HostsFileError(sentence(f"{shown}, host {_title(row, number)}: {problem}")) from None
        hosts.append(host)
    if not hosts:
        raise HostsFileError(f'{shown}: there are no hosts; write at least [[host]] and address = "…".')
    return hosts


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except FileNotFoundError:
        raise HostsFileError(f"{path}: there is no such file; check the path.") from None
    except OSError as error:
        raise HostsFileError(f"{path}: cannot be read: {error.strerror}.") from None


def _parse(content: bytes, shown: str) -> dict[str, Any]:
    if len(content) > LARGEST:
        raise HostsFileError(f"{shown}: larger than {LARGEST >> 20} MiB; is it a hosts file?")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise HostsFileError(f"{shown}: not UTF-8 at offset {error.start}; save the file as UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise HostsFileError(f"{shown}: not valid TOML: {error}.") from None


def _defaults(shown: str, table: Any) -> dict[str, Any]:
    try:
        return _given(msgspec.convert(table, _Shared))
    except msgspec.ValidationError as error:
        own = {"name", "address", "host_key"}.intersection(
            cast("dict[str, Any]", table) if isinstance(table, dict) else ()
        )
        advice = f"; {min(own)} belongs to a single host; write it under [[host]]" if own else ""
        raise HostsFileError(sentence(f"{shown}, [defaults]: {explain(error, _Shared, _HINTS)}{advice}")) from None


def _row(row: Any, shared: dict[str, Any]) -> _HostRow:
    try:
        return msgspec.convert(shared | _given(msgspec.convert(row, _HostRow)), _HostRow)
    except msgspec.ValidationError as error:
        raise _Problem(explain(error, _HostRow, _HINTS)) from None


def _given(row: _Shared) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(row).items() if value is not None}


def _title(row: Any, number: int) -> str:
    table = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    named = table.get("name") or table.get("address")
    return quoted(named) if isinstance(named, str) else f"number {number}"


def _spec(row: _HostRow, folder: Path) -> SshHostSpec:
    if not row.address.strip() or re.search(r"[\s@/\0]", row.address):
        raise _Problem(f"address: {quoted(row.address)} is not a host name or address; put the user in `user`")
    name = row.address if row.name is None else row.name
    if not _NAME.fullmatch(name):
        raise _Problem(f"name: {quoted(name)} is not a valid name; use letters, digits and . _ - (at most 128)")
    for key, text in (("user", row.user), ("python", row.python), ("folder", row.folder)):
        if text is not None and (not text.strip() or re.search(r"[\0\n]", text)):
            raise _Problem(f"{key}: must not be empty or contain a line break")
    return SshHostSpec(
        name=name,
        login=Login(address=row.address, port=_port("port", row.port), user=row.user),
        key=None if row.key is None else _key(row.key, folder),
        host_key=None if row.host_key is None else _host_key(row.host_key),
        jump=None if row.jump is None else login_of("jump", row.jump),
        slots=_within("slots", 1 if row.slots is None else row.slots, MOST_SLOTS),
        price_usd_per_hour=_price(row.price_usd_per_hour or 0.0),
        memory_mb=None if row.memory_mb is None else _within("memory_mb", row.memory_mb, 2**31 - 1),
        python=row.python,
        folder=row.folder or DEFAULT_FOLDER,
        connect_s=seconds("connect_timeout", row.connect_timeout, _Problem) or DEFAULT_CONNECT_S,
        ssh_config=row.ssh_config is not False,
    )


def login_of(key: str, text: str) -> Login:
    match = _JUMP.fullmatch(text)
    if match is None:
        raise _Problem(f'{key}: {quoted(text)} is not valid; write "user@address" or "user@address:port"')
    return Login(address=match["host"].strip("[]"), port=_port(key, match["port"]), user=match["user"])


def _require_other(host: SshHostSpec, others: list[SshHostSpec]) -> None:
    for other in others:
        if other.name == host.name:
            raise _Problem("name: is used twice; names must differ")
        if (other.login, other.jump, other.folder) == (host.login, host.jump, host.folder):
            raise _Problem(f"is the same machine as host {quoted(other.name)}; list it once, with more `slots`")


def _port(key: str, port: int | str | None) -> int | None:
    if port is not None and not 1 <= int(port) <= 65535:
        raise _Problem(f"{key}: {port} is not a valid port; use 1 to 65535")
    return None if port is None else int(port)


def _within(key: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise _Problem(f"{key}: {value} is out of range; use 1 to {most}")
    return value


def _price(value: float) -> float:
    if not 0 <= value < math.inf:
        raise _Problem(f"price_usd_per_hour: {value:g} is out of range; use 0 or more")
    return value


def _key(text: str, folder: Path) -> Path:
    """The private key's file; a relative path starts at the hosts file's folder."""
    try:
        path = folder / Path(text).expanduser()
        if path.is_file():
            return path
    except (OSError, RuntimeError, ValueError):
        pass
    raise _Problem(f"key: there is no file {quoted(text)}; name the private key, or leave it out to use the agent")


def _host_key(text: str) -> str:
    """A public key as `ssh-keyscan` prints it, without the host's name."""
    kind, _, rest = text.strip().partition(" ")
    body = rest.split(" ", 1)[0]
    try:
        data = base64.b64decode(body, validate=True)
        if data[4 : 4 + int.from_bytes(data[:4], "big")].decode() == kind and kind:
            return f"{kind} {body}"
    except (binascii.Error, ValueError):
        pass
    raise _Problem(
        f"host_key: {quoted(text, 40)} is not a public key; copy what `ssh-keyscan` prints after the host name: "
        '"ssh-ed25519 AAAA…"'
    )
