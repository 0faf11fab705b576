"""Builds of golden images on a machine of a pool: a build is a run with one task, so that it survives this process.

The run is named after the image, and this home has one unfinished build of an image at a time: who asks again goes on with
it. A pool that does not exist is made for the build and deleted after it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from evalfleet import config
from evalfleet.benchmarks.waa.golden import manifest
from evalfleet.benchmarks.waa.golden.attempt import ISO_SECRET, is_signed
from evalfleet.benchmarks.waa.golden.manifest import Golden
from evalfleet.benchmarks.waa.golden.transfer import (
    TransferFailed,
    golden_at,
    is_address,
    require_writable,
    shown,
    signed,
)
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.config.pools import PoolOptions
from evalfleet.errors import InputError, WrongState
from evalfleet.layout import Home
from evalfleet.model import PYTHON, JsonObject, Outcome, Pool, Run, Tools
from evalfleet.operations import pools
from evalfleet.operations.submit import RunOptions, submit
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import PoolKind
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.taskfile import from_mappings

PREPARE_S = 4 * 3600.0  # for Docker, its image, the ISO and the way to the blob container
TOLD_POLLS = 60  # looks at Windows between two reports


class BuildRequest(Struct, frozen=True, kw_only=True):
    """What a person asks for."""

    name: str
    pool: str
    iso: str | None
    to: str | None  # a blob container, without signature
    bake: str | None  # a VM image that the machine's disk becomes
    accept_eula: bool
    backend: str | None  # of a pool that does not exist yet, with its options
    options: PoolOptions


def run_name(image: str) -> str:
    return f"waa-image-{image}"


def newest_build(store: StoreReader, image: str) -> Run | None:
    """The newest build of an image by this home."""
    found = store.runs.page(limit=1000, search=run_name(image))
    return next((row["run"] for row in found if row["run"].name == run_name(image)), None)


def check(waa: WaaSettings, request: BuildRequest) -> None:
    """Raises InputError for what cannot be built, or would be stored over another image. Nothing is bought before."""
    for option, value, variable in (("--to", request.to, waa.golden_secret), ("--iso", request.iso, ISO_SECRET)):
        if value is not None and is_signed(value):
            raise InputError(
                f"{option}: a signature in an address is seen by others; export {variable}=… and leave it out of the address"
            )
    if not request.accept_eula:
        raise InputError("Windows has licence terms of its own; read them, then say --accept-eula")
    if request.to is None and request.bake is None:
        raise InputError("say where the image is kept: --to URL of a blob container, or --bake NAME of a VM image")
    if request.to is not None and not is_address(request.to):
        raise InputError(f"--to {request.to}: must be the address of a blob container")
    if request.iso is not None and not is_address(request.iso) and not Path(request.iso).expanduser().is_file():
        raise InputError(f"--iso {request.iso}: there is no such file")
    if request.to is not None:
        _check_target(waa, request.to)


def _check_target(waa: WaaSettings, to: str) -> None:
    secret = config.environment().get(waa.golden_secret)
    if not secret:
        raise InputError(
            f"--to: export {waa.golden_secret}=… with a signature that may read and write blobs of {shown(to)}"
        )
    try:
        require_writable(signed(to, secret))
    except TransferFailed as error:
        raise InputError(f"--to: {error}; {waa.golden_secret} must hold a signature that allows it") from None
    try:
        there = golden_at(signed(to, secret))
    except TransferFailed:
        return  # none, or a signature that only allows writing
    raise InputError(f"{shown(to)} has a golden image already: {there.name}, of {there.created_at[:10]}")


def submit_build(
    settings: config.Settings,
    store: Store,
    waa: WaaSettings,
    request: BuildRequest,
    may_buy: Callable[[PoolKind, JsonObject], bool],
) -> Run:
    """Store the build and, where it does not exist, its pool: both or neither.

    Args:
        may_buy: asked before a pool is made, with its kind and settings.

    Raises InputError, WrongState.
    """
    iso = None if request.iso is None or is_address(request.iso) else Path(request.iso).expanduser().absolute()
    is_own = all(pool.name != request.pool for pool in store.pools.all())
    if is_own and not may_buy(*pools.preview(settings, request.pool, _own(request), backend=request.backend)):
        raise InputError("nothing was bought, and the build was not begun; see above")
    with store.batch():
        pool = _made(settings, store, waa, request) if is_own else _existing(store, request)
        task = _task(waa, request, iso, own_pool=is_own)
        limits = {"attempts": 1, "result": "required", "timeout": PREPARE_S + waa.install_timeout_s}
        folder = str(iso.parent) if iso else "/"
        made = from_mappings([task], limits, folder=folder, name=run_name(request.name), shown="the build")
        policy = replace(made.policy, tools=Tools(), files=(iso.name,) if iso else ())
        run, _ = submit(settings, store, replace(made, policy=policy), RunOptions(pool=pool.name, workers=1))
        if is_own and request.bake is None:
            pools.amend(store, pool, run=run.id)  # it goes with the run, whoever drives that
    return run


def _task(waa: WaaSettings, request: BuildRequest, iso: Path | None, *, own_pool: bool) -> JsonObject:
    secrets = [
        *((ISO_SECRET,) if request.iso and is_address(request.iso) else ()),
        *((waa.golden_secret,) if request.to else ()),
        *((waa.registry_secret,) if waa.registry_user else ()),
    ]
    there = replace(waa, install_docker=True) if waa.install_docker is None else waa
    return {
        "key": request.name,
        "domain": "waa-image",
        "command": [PYTHON, "-m", "evalfleet.benchmarks.waa.golden.attempt"],
        "secrets": list(config.set_secrets(secrets)),
        "payload": {
            "waa": asdict(there),
            "name": request.name,
            "iso": iso.name if iso else request.iso,
            "to": request.to,
            "bake": request.bake,
            "accept_eula": request.accept_eula,
            "told_s": TOLD_POLLS * waa.poll_s,
            "own_pool": own_pool,
        },
    }


def _own(request: BuildRequest) -> PoolOptions:
    return msgspec.structs.replace(request.options, workers=1, min=0, max=1, idle_action="delete")


def _made(settings: config.Settings, store: Store, waa: WaaSettings, request: BuildRequest) -> Pool:
    pool = pools.create(settings, store, request.pool, _own(request), backend=request.backend)
    registry.cloud_of(pool)
    pools.amend(store, pool, benchmark=None, kvm=waa.kvm)  # its machines cannot be ready for what is still to be built
    return store.pools.get(request.pool)


def _existing(store: Store, request: BuildRequest) -> Pool:
    if request.backend is not None or request.options != PoolOptions():
        raise InputError(f"pool {request.pool!r} exists; --backend and its options are for a pool that is made")
    pool = store.pools.get(request.pool)
    if request.bake is not None:
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


def built(settings: config.Settings, store: StoreReader, run: Run) -> tuple[Golden, str] | None:
    """What a build that is over made, and the host where; None where it failed.

    Raises WrongState: its manifest did not come home.
    """
    task = next(iter(store.tasks.all(run.id)))
    ended = [row for row in store.attempts.all_rows(run.id) if row["outcome"] == Outcome.OK]
    if not ended:
        return None
    folder = Home(settings.home).attempt(run.id, task.spec.key, ended[-1]["number"]) / "artifacts"
    golden = manifest.read(folder)
    if golden is None:
        raise WrongState(f"run {run.id} built the image, but its manifest is not in {folder}")
    return golden, ended[-1]["host"]
