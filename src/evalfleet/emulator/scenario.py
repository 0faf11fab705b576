"""A scenario file: quotas, how long things take, and what goes wrong, in TOML.

::

    seed = 7

    [times]                    # in cloud seconds
    create = 60

    [quota.eastus]
    standardDDSv5Family = 16

    [[fault]]
    op = "vm.create"
    match = { location = "westus2" }
    preset = "allocation_failed"
    times = 2

    [[eviction]]               # of spot machines
    after = 300                # cloud seconds
    count = 1
    every = 180
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from evalfleet.emulator.faults import PRESETS, Fault
from evalfleet.errors import ConfigError
from evalfleet.schema import explain


class Times(msgspec.Struct, forbid_unknown_fields=True):
    """How long Azure takes, in its own seconds."""

    create: float = 45.0
    start: float = 30.0
    deallocate: float = 40.0
    delete: float = 20.0
    network: float = 2.0
    notice: float = 30.0  # between the warning of an eviction and its end


class Eviction(msgspec.Struct, forbid_unknown_fields=True):
    """Spot machines that Azure takes back."""

    after: float
    count: int = 1
    every: float | None = None  # again and again


class Scenario(msgspec.Struct, forbid_unknown_fields=True):
    """What a scenario file may say."""

    seed: int = 0
    times: Times = msgspec.field(default_factory=Times)
    quota: dict[str, dict[str, int]] = {}
    fault: list[Fault] = []
    eviction: list[Eviction] = []


def load(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    try:
        scenario = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Scenario)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, Scenario, {})}.") from None
    for fault in scenario.fault:
        check(fault, str(path))
    return scenario


def check(fault: Fault, where: str) -> None:
    """Refuse a fault that would do nothing.

    Raises:
        ConfigError: names its place and the remedy.
    """
    if fault.preset is not None and fault.preset not in PRESETS:
        raise ConfigError(f'{where}: preset: there is no "{fault.preset}"; known: {", ".join(PRESETS)}.')
    if fault.preset is None and not (fault.hang or fault.drop or fault.delay or fault.exit is not None):
        raise ConfigError(f"{where}: a fault needs one of preset, delay, hang, drop or exit.")
