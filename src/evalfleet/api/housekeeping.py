"""Keeping a home: making room, backups, runs as single files."""

from __future__ import annotations

from evalfleet import config, duration
from evalfleet.api.tasks import Folder
from evalfleet.core.retention import Part
from evalfleet.errors import InputError
from evalfleet.operations.housekeeping import backup as backups
from evalfleet.operations.housekeeping import prune as pruning
from evalfleet.operations.housekeeping import restore as restoring
from evalfleet.operations.housekeeping.backup import BackedUp
from evalfleet.operations.housekeeping.prune import Pruned
from evalfleet.operations.housekeeping.restore import Restored
from evalfleet.validation import sentence


def prune(
    *runs: str,
    what: str = "artifacts",
    artifacts: str | float | None = None,
    logs: str | float | None = None,
    whole_runs: str | float | None = None,
    size_gb: float | None = None,
    count: int | None = None,
    dry_run: bool = False,
    home: Folder | None = None,
) -> Pruned:
    """Remove files of finished runs, as `evalfleet prune`: of the named runs, or by rules.

    Args:
        runs: ids or names; then the rules do not count.
        what: of these runs: "artifacts"; "logs" with the artifacts; "run" for everything.
        artifacts, logs, whole_runs: remove this of runs that ended so long ago ("30d"); else what [retention] says.
        size_gb, count: the same rules of [retention].
        dry_run: remove nothing; the answer says what would go.

    Raises NotFound, InputError; WrongState: a named run is pinned, goes on or is not collected; Owned: another prune is at work.
    """
    if what not in set(Part):
        raise InputError(f"what: {what!r} is none of {', '.join(Part)}")
    machine = config.load(home)
    ages = {"artifacts_s": artifacts, "logs_s": logs, "runs_s": whole_runs}
    given = {name: None if age is None else _seconds(name, age) for name, age in ages.items()}
    size = None if size_gb is None else int(size_gb * 1e9)
    rules = machine.retention.rules.overridden(**given, size=size, count=count)
    if not runs and not rules.is_set:
        raise InputError('name runs, or give a rule such as artifacts="30d"; [retention] has none')
    return pruning.prune(machine.home, rules, runs=runs, what=Part(what), dry_run=dry_run)


def backup(to: Folder, *, home: Folder | None = None) -> BackedUp:
    """Back a home up while its runs go on, as `evalfleet backup`: to a folder, or to a new file whose name ends in .zip.

    Raises NotFound, InputError, StoreError, OSError; Owned: another backup or a prune is at work.
    """
    return backups.backup(config.load(home).home, to)


def restore(
    source: Folder, *, home: Folder | None = None, adopt: bool = False, replace: bool = False, store: str | None = None
) -> Restored:
    """Make a home of a backup, as `evalfleet restore`.

    Args:
        home: the home to make.
        adopt: it takes the place of the original, which must be gone for good.
        replace: set a home aside that is there and that nothing uses.
        store: the address of an empty PostgreSQL database that remembers the runs from then on.

    Raises InputError, Refused, Owned, CopiedHome, StoreError, OSError.
    """
    return restoring.restore(source, config.load(home).home, adopt=adopt, replace=replace, store=store)


def _seconds(name: str, age: str | float) -> float:
    try:
        return duration.parse(age)
    except ValueError as error:
        raise InputError(sentence(f"{name.removesuffix('_s')}: {error}")) from None
