"""What a person asks for who has a golden image built on a machine of a pool: whether it can be built, and as which task."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from evalfleet import config
from evalfleet.benchmarks.image_build import ImageBuild
from evalfleet.benchmarks.waa.golden.attempt import ISO_SECRET, is_signed
from evalfleet.benchmarks.waa.golden.transfer import (
    TransferFailed,
    golden_at,
    is_address,
    require_writable,
    shown,
    signed,
)
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.errors import InputError
from evalfleet.model import PYTHON

PREPARE_S = 4 * 3600.0  # for Docker, its image, the ISO and the way to the blob container
TOLD_POLLS = 60  # looks at Windows between two reports


class GoldenRequest(Struct, frozen=True, kw_only=True):
    name: str
    iso: str | None
    to: str | None  # a blob container, without signature
    bake: str | None  # a VM image that the machine's disk becomes
    accept_eula: bool


def run_name(image: str) -> str:
    return f"waa-image-{image}"


def check(waa: WaaSettings, request: GoldenRequest) -> None:
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


def build_of(waa: WaaSettings, request: GoldenRequest) -> ImageBuild:
    """The build as the task that `golden.attempt` plays."""
    iso = None if request.iso is None or is_address(request.iso) else Path(request.iso).expanduser().absolute()
    secrets = [
        *((ISO_SECRET,) if request.iso and is_address(request.iso) else ()),
        *((waa.golden_secret,) if request.to else ()),
        *((waa.registry_secret,) if waa.registry_user else ()),
    ]
    there = replace(waa, install_docker=True) if waa.install_docker is None else waa
    task = {
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
        },
    }
    return ImageBuild(
        run_name=run_name(request.name),
        task=task,
        timeout_s=PREPARE_S + waa.install_timeout_s,
        file=iso,
        kvm=waa.kvm,
        bake=request.bake,
    )
