"""Builds of images on a machine of a pool: a build is a run with one task, so that it survives this process.

This home has one unfinished build of an image at a time: who asks again goes on with it. A pool that does not exist is made
for the build and deleted after it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from evalfleet import config
from evalfleet.benchmarks.image_build import ImageBuild
from evalfleet.config.pools import PoolOptions
from evalfleet.errors import InputError
from evalfleet.files.base import AttemptFiles
from evalfleet.files.folder import FolderFiles
from evalfleet.files.home import home_files
from evalfleet.model import JsonObject, Outcome, Pool, Run, Tools
from evalfleet.operations.machines import pools
from evalfleet.operations.runs.submit import RunOptions, submit
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import PoolKind
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.taskfile import from_mappings


class BuildPool(Struct, frozen=True, kw_only=True):
    """Where an image is built."""

    name: str
    backend: str | None  # of a pool that does not exist yet, with its options
    options: PoolOptions


def newest_build(store: StoreReader, run_name: str) -> Run | None:
    """The newest build of that name by this home."""
    found = store.runs.page(limit=1000, search=run_name)
    return next((row["run"] for row in found if row["run"].name == run_name), None)


def submit_build(
    settings: config.Settings,
    store: Store,
    build: ImageBuild,
    wanted: BuildPool,
    may_buy: Callable[[PoolKind, JsonObject], bool],
) -> Run:
    """Store the build and, where it does not exist, its pool: both or neither.

    Args:
        may_buy: asked before a pool is made, with its kind and settings.

    Raises InputError, WrongState.
    """
    is_own = all(pool.name != wanted.name for pool in store.pools.all())
    if is_own and not may_buy(*pools.preview(settings, wanted.name, _own(wanted), backend=wanted.backend)):
        raise InputError("nothing was bought, and the build was not begun; see above")
    with store.batch():
        pool = _made(settings, store, build, wanted) if is_own else _existing(store, build, wanted)
        task = {**build.task, "payload": {**build.task["payload"], "own_pool": is_own}}
        limits = {"attempts": 1, "result": "required", "timeout": build.timeout_s}
        folder = str(build.file.parent) if build.file else "/"
        made = from_mappings([task], limits, folder=folder, name=build.run_name, shown="the build")
        policy = replace(made.policy, tools=Tools(), files=(build.file.name,) if build.file else ())
        run, _ = submit(settings, store, replace(made, policy=policy), RunOptions(pool=pool.name, workers=1))
        if is_own and build.bake is None:
            pools.amend(store, pool, run=run.id)  # it goes with the run, whichever process drives that
    return run


def _own(wanted: BuildPool) -> PoolOptions:
    return replace(wanted.options, workers=1, min=0, max=1, idle_action="delete")


def _made(settings: config.Settings, store: Store, build: ImageBuild, wanted: BuildPool) -> Pool:
    pool = pools.create(settings, store, wanted.name, _own(wanted), backend=wanted.backend)
    registry.cloud_of(pool)
    pools.amend(
        store, pool, benchmark=None, kvm=build.kvm
    )  # its machines cannot be ready for what is still to be built
    return store.pools.get(wanted.name)


def _existing(store: Store, build: ImageBuild, wanted: BuildPool) -> Pool:
    if wanted.backend is not None or wanted.options != PoolOptions():
        raise InputError(f"pool {wanted.name!r} exists; --backend and its options are for a pool that is made")
    pool = store.pools.get(wanted.name)
    if build.bake is not None:
        registry.cloud_of(pool)  # machines that exist are not baked
    return pool


def own_pool(store: StoreReader, run: Run) -> Pool | None:
    """The pool that was made for the build, if it is still there. One that was made later under its name is another's."""
    if not payload_of(store, run)["own_pool"]:
        return None
    found = next((pool for pool in store.pools.all() if pool.name == run.policy.pool), None)
    return found if found is not None and found.created_at <= run.created_at else None


def payload_of(store: StoreReader, run: Run) -> JsonObject:
    return next(iter(store.tasks.all(run.id))).spec.payload


def built(settings: config.Settings, store: StoreReader, run: Run) -> tuple[AttemptFiles, str] | None:
    """The files of a build that is over, and the host where it was made; None where it failed. Raises FilesUnreachable."""
    task = next(iter(store.tasks.all(run.id)))
    ended = [row for row in store.attempts.all_rows(run.id) if row["outcome"] == Outcome.OK]
    if not ended:
        return None
    number, host = ended[-1]["number"], ended[-1]["host"]
    files = home_files(settings.home)
    folder = files.folder(run.id, task.spec.key, number)
    return files.get(run.id, task.spec.key, number) or FolderFiles(folder), host
