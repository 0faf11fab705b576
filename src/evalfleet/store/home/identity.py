"""Who a home is, and whether it is the original.

A home has a random id. The database keeps it, together with the number of the database's own file, or of the file that names the
server where the database is. A move keeps that file, and so does
mounting the file system again, although its device number changes. A copy is another file, or the same file on another machine where
the disk was cloned. So a copy notices that it is one. It leaves alone what the original has outside of itself, such as processes, hosts
and rented machines, until a person lets it take the original's place.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from evalfleet.config import login_name
from evalfleet.errors import CopiedHome
from evalfleet.store.database.base import Database
from evalfleet.store.database.file_lock import holder
from evalfleet.store.home.facts import Facts, Former, Identity, facts_in, identity_of
from evalfleet.store.home.place import anchor, member_of

_BOOT, _MACHINE = Path("/proc/sys/kernel/random/boot_id"), Path("/etc/machine-id")

_IN_USE = "in use"

seen: dict[Path, str] = {}  # copies that this process has opened, and what is to be said of each


def facts_of(home: Path, file: Path | None = None) -> Facts:
    """Args:
    file: stands for the home's store, where that is not in place yet.
    """
    found = (file or anchor(home)).stat()
    path = os.fsencode(home.resolve()).decode("utf-8", "replace")  # a name need not be text
    return Facts(
        path=path,
        inode=str(found.st_ino),
        device=str(found.st_dev),
        boot=_line(_BOOT),
        machine=_line(_MACHINE),
    )


def is_copy(known: Facts, now: Facts, *, stays: bool = False) -> bool:
    """Pure.

    Args:
        stays: where it was, there is still a file with its number that is not this one, as after a clone of the whole file system.
    """
    return known.inode != now.inode or _is_elsewhere(known, now) or (known.path != now.path and stays)


def _is_elsewhere(known: Facts, now: Facts) -> bool:
    """Whether it lies on another machine now. Many containers do not know which one theirs is."""
    return bool(known.machine and now.machine) and known.machine != now.machine


def still_there(known: Facts, now: Facts) -> bool:
    try:
        found = anchor(Path(known.path)).stat()
    except OSError:
        return False
    there = (str(found.st_ino), str(found.st_dev))
    return there[0] == known.inode and there != (now.inode, now.device)


def read(database: Database) -> Identity | None:
    """None: the home has none yet."""
    found = database.rows("select_home")
    return identity_of(found[0]) if found else None


def read_here(database: Database, home: Path) -> Identity | None:
    """Like `read`, with the place of this folder where it is a further one of the home. Raises CopiedHome: it is not any more."""
    known, member = read(database), member_of(home)
    if known is None or not member:
        return known
    found = database.rows("select_member", id=member)
    if not found:
        raise CopiedHome(f"{home} does not belong to the home any more; remove {anchor(home)}, and join again")
    return replace(known, facts=facts_in(found[0]))


def copy_words(database: Database, home: Path) -> str | None:
    """What a copy says of itself; None where it is none."""
    known, now = read_here(database, home), facts_of(home)
    if known is None or not is_copy(known.facts, now, stays=still_there(known.facts, now)):
        return None
    if _is_elsewhere(known.facts, now):
        return f"this home is a copy of {known.facts.path}, or its disk was moved: it lies on another machine now"
    there = _original(known, now)
    state = (
        f"the original is {there}" if there else "the original is not there any more, as far as can be seen from here"
    )
    return f"this home is a copy of {known.facts.path}: {state}"


def settle(database: Database, home: Path, *, copies: bool) -> None:
    """Give a home its id, and keep where it lies.

    Args:
        copies: open a copy as well.

    Raises:
        CopiedHome: it is a copy.
    """
    known, now, member = read_here(database, home), facts_of(home), member_of(home)
    if known is not None and known.facts == now:
        return
    words = copy_words(database, home)
    if words is not None:
        if copies:
            return
        raise CopiedHome(
            f"{words}. Nothing was started, ended or changed. Where the original is gone for good, `evalfleet resume RUN --adopt` "
            "(or `evalfleet doctor --adopt`) lets this home take its place; status, report and logs show what it holds"
        )
    with database.transaction():
        if read(database) is None:
            _insert(database, now, legacy=_legacy(home), former=())
        elif member:
            database.rows("place_member", id=member, **msgspec.to_builtins(now))
        else:
            database.rows("place_home", **msgspec.to_builtins(now))


def adopt(database: Database, home: Path) -> tuple[Identity, Identity] | None:
    """Let a copy replace the original, under its own id; returns both. None: it is not a copy.

    Raises:
        CopiedHome: the original is in use.
    """
    known, now = read_here(database, home), facts_of(home)
    if known is None or copy_words(database, home) is None:
        return None
    if member_of(home):
        raise CopiedHome(
            f"{home} is a copy of a further folder of the home, which cannot take its place; remove {anchor(home)}, and join again"
        )
    there = _original(known, now)
    if there is not None and there.endswith(_IN_USE):
        raise CopiedHome(f"the original of this home is {there}: {known.facts.path}. End what uses it first")
    refuse_moved(home)
    with database.transaction():
        database.rows("forget_home")
        former = (*known.former, Former(known.id, known.label))
        return known, _insert(database, now, legacy=known.legacy, former=former)


def refuse_moved(home: Path) -> None:
    """Raise CopiedHome where this is only what the runner of a home that was moved away has left: a link to its spool."""
    spool = home / "spool"
    try:
        if not spool.is_symlink() or holder(spool / "runner.lock") is None:
            return
        now = spool.readlink().parent
    except (OSError, ValueError):
        return
    raise CopiedHome(
        f"the home that was at {home} was moved to {now}, and its tasks still run: use it there (--home {now}), or end them first"
    )


def _original(known: Identity, now: Facts) -> str | None:
    """How the original is, where it can be seen from here; None: it is not there."""
    home = Path(known.facts.path)
    if _is_elsewhere(known.facts, now) or not still_there(known.facts, now):
        return None
    try:
        locks = [*(home / "locks").glob("*.lock"), home / "spool" / "runner.lock"]
        if any(holder(lock) is not None for lock in locks):
            return f"still there, and {_IN_USE}"
    except OSError:
        return None
    return "still there"


def _insert(database: Database, facts: Facts, *, legacy: str | None, former: tuple[Former, ...]) -> Identity:
    import secrets  # once in the life of a home, and these take longer to load than all the rest
    import socket

    new = secrets.token_hex(16)
    rows = database.rows(
        "insert_home",
        id=new,
        label=f"{login_name()}@{socket.gethostname()}-{new[:12]}",
        legacy=legacy,
        former=msgspec.json.encode(former).decode(),
        **msgspec.to_builtins(facts),
    )
    return identity_of(rows[0])


def _legacy(home: Path) -> str:
    """The label by which homes were known before they had an id. Another home may have had the same."""
    import hashlib
    import socket

    mark = hashlib.sha256(f"{socket.gethostname()}:{home.absolute()}".encode("utf-8", "surrogateescape")).hexdigest()[
        :8
    ]
    return f"{login_name()}@{socket.gethostname()}-{mark}"


def _line(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
