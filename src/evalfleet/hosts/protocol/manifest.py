"""The list of an attempt's files in its end record."""

from __future__ import annotations

import errno
import json
import os
from typing import Any, cast

from msgspec import Struct

from evalfleet.model import JsonObject


class Manifest(Struct, frozen=True, kw_only=True):
    artifacts: tuple[tuple[str, int], ...]  # path below the folder of the artifacts, and size
    unclean: frozenset[str] = frozenset()  # files of the attempt's folder that may hold a secret


def manifest_of(journal: int) -> Manifest:
    """Read it from an open journal.

    Raises OSError: the last line is not an end record. Then the attempt's files are not known, and none may be removed.
    """
    last = b""
    with open(os.dup(journal), "rb") as file:
        for line in file:
            last = line
    try:
        found: Any = json.loads(last)
    except ValueError:
        found = None
    end = cast("JsonObject", found) if isinstance(found, dict) else {}
    if end.get("type") != "ended":
        raise OSError(errno.EAGAIN, "its journal has no end record yet")
    try:
        artifacts = tuple((str(one["path"]), int(one["size"])) for one in end["artifacts"])
        return Manifest(artifacts=artifacts, unclean=frozenset(str(name) for name in end.get("unclean") or ()))
    except (ValueError, KeyError, TypeError):
        raise OSError(errno.EBADMSG, "its end record lists no artifacts") from None
