"""What a benchmark has built on a machine of a pool, such as the disk of its guests. `operations.machines.image_build` runs it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from evalfleet.model import JsonObject


class ImageBuild(Struct, frozen=True, kw_only=True):
    run_name: str  # this home has one unfinished build of a name at a time
    task: JsonObject  # as in a task file; what it makes are its artifacts
    timeout_s: float
    file: Path | None = None  # of this machine, which the task needs
    kvm: bool = False
    bake: str | None = None  # the image that the machine's disk becomes after the build
