"""The runner's clock: wall time that never jumps."""

from __future__ import annotations

import json

from . import jsontext
from .attempt import process_tree
from .spool.spool import write_atomically

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .spool.spool import Spool


def steady(spool: Spool, wall: Callable[[], float], keeps: bool = True) -> Callable[[], float]:
    """A clock that follows the time since boot, even if the host's wall clock is changed.

    All runners of the spool share one starting point until the next boot, so that a new one can tell how long the attempts of its
    dead predecessor took. The starting point may be wrong: `hello` sends our time, and a controller corrects for the difference.

    Args:
        keeps: False to write nothing, for a caller that only reads.
    """
    path = spool.path("clock.json")
    boot = process_tree.boot_id()
    try:
        with open(path, "rb") as file:
            known = json.load(file)
        booted = float(known["booted"]) if known["boot_id"] == boot else None
    except (OSError, ValueError, KeyError, TypeError):
        booted = None  # the first runner, or a file that a crash spoiled
    if booted is None:
        booted = wall() - _since_boot_s()
        if keeps:
            write_atomically(path, jsontext.encode({"boot_id": boot, "booted": booted}))
    return lambda: booted + _since_boot_s()


def _since_boot_s() -> float:
    return process_tree.boottime_ns() / 1e9
