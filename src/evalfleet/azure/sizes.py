"""VM sizes: a table of those that people use, and what the SKU API told of others (`learn`).

Azure tells all but nested virtualization, which no API knows.

Sources: the size pages of Microsoft's documentation (row "Nested Virtualization") and records of the SKU API.
"""

from __future__ import annotations

import re

from msgspec import Struct

from evalfleet.errors import NotFound

DEFAULT_SIZE = "Standard_D8ds_v5"  # 32 GB: agents with vision models ran out of memory with 16 GB
VCPUS = (2, 4, 8, 16, 32)


class Series(Struct, frozen=True, kw_only=True):
    """What all sizes of one series share. The defaults are what most series have."""

    pattern: str  # of the name; {} is the number of vCPUs
    family: str  # the name that quotas are counted under
    gb_per_vcpu: float = 4
    nested: bool = True  # KVM works inside
    generations: tuple[int, ...] = (1, 2)  # of images that boot on it
    premium: bool = True  # takes premium disks
    nvme: bool = False  # has NVMe disks only
    temporary_disk: bool = False  # has a local disk, which is wiped on deallocate
    arm: bool = False  # has Arm processors, which need images of their own


class Size(Struct, frozen=True, kw_only=True):
    """One size."""

    name: str
    vcpus: int
    memory_gb: float
    series: Series
    gpus: int = 0

    @property
    def family(self) -> str:
        return self.series.family

    @property
    def nested(self) -> bool:
        return self.series.nested

    @property
    def temporary_disk(self) -> bool:
        return self.series.temporary_disk

    @property
    def generation(self) -> int:
        """The newest generation of images that it boots."""
        return max(self.series.generations)


SERIES: tuple[Series, ...] = (
    Series(pattern="Standard_D{}_v3", family="standardDv3Family", generations=(1,), premium=False, temporary_disk=True),
    Series(pattern="Standard_D{}s_v3", family="standardDSv3Family", temporary_disk=True),
    Series(pattern="Standard_D{}as_v4", family="standardDASv4Family", nested=False, temporary_disk=True),
    Series(pattern="Standard_D{}s_v4", family="standardDSv4Family"),
    Series(pattern="Standard_D{}ds_v4", family="standardDDSv4Family", temporary_disk=True),
    Series(pattern="Standard_D{}s_v5", family="standardDSv5Family"),
    Series(pattern="Standard_D{}ds_v5", family="standardDDSv5Family", temporary_disk=True),
    Series(pattern="Standard_D{}as_v5", family="standardDASv5Family"),
    Series(pattern="Standard_D{}ads_v5", family="standardDADSv5Family", temporary_disk=True),
    Series(pattern="Standard_E{}s_v5", family="standardESv5Family", gb_per_vcpu=8),
    Series(pattern="Standard_E{}ds_v5", family="standardEDSv5Family", gb_per_vcpu=8, temporary_disk=True),
    Series(pattern="Standard_D{}ds_v6", family="StandardDdsv6Family", generations=(2,), nvme=True, temporary_disk=True),
)

# Known, but without prices in the package: machines with GPUs, whose vCPUs go by the number of cards.
GPU_SERIES: tuple[Series, ...] = (
    Series(pattern="Standard_NC{}as_T4_v3", family="Standard NCASv3_T4 Family", gb_per_vcpu=6.875, nested=False),
    Series(pattern="Standard_NV{}ads_A10_v5", family="StandardNVADSA10v5Family", gb_per_vcpu=12.2, nested=False),
    Series(pattern="Standard_NC{}ads_A100_v4", family="StandardNCADSA100v4Family", gb_per_vcpu=9.17, nested=False),
    Series(pattern="Standard_NC{}ads_H100_v5", family="StandardNCadsH100v5Family", gb_per_vcpu=8, nested=False),
    Series(pattern="Standard_NC{}adis_H100_v5", family="StandardNCadsH100v5Family", gb_per_vcpu=8, nested=False),
    Series(pattern="Standard_ND{}isr_H100_v5", family="standardNDSH100v5Family", gb_per_vcpu=19.8, nested=False),
)

SIZES: dict[str, Size] = {
    name: Size(name=name, vcpus=vcpus, memory_gb=series.gb_per_vcpu * vcpus, series=series)
    for series in SERIES
    for vcpus in VCPUS
    for name in [series.pattern.format(vcpus)]
}

_learned: dict[str, Size] = {}  # by name in lower case; what a size has never changes
# Family, vCPUs, vCPUs of a constrained size, features, accelerator, version: Standard_NC24ads_A100_v4, Standard_M8-2ms.
_NAME = re.compile(
    r"(?:Standard|Basic)_([A-Z]+)(\d+)(?:-(\d+))?([a-z]*)(?:_(?!v\d)[A-Z][A-Z0-9]*)?(?:_v(\d+))?", re.IGNORECASE
)
_NEVER_NESTED = re.compile(r"[ABHN].*|[DE]C", re.IGNORECASE)  # families on which KVM does not work inside
_NESTED_SINCE = {
    "F": 2,
    "FX": 1,
    "L": 3,
    "M": 1,
}  # version; other families have it since v3, with AMD's processors since v5


def learn(size: Size) -> None:
    """Know a size from now on, as the SKU API described it."""
    _learned[size.name.lower()] = size


def known(name: str) -> Size | None:
    """Return the size of that name, whatever its case: of a series that is known, with any number of vCPUs, or learned."""
    if name.lower() in _learned:
        return _learned[name.lower()]
    for series in (*SERIES, *GPU_SERIES):
        before, after = series.pattern.split("{}")
        found = re.fullmatch(rf"{before}(\d{{1,3}}){after}", name, re.IGNORECASE)
        if found:
            vcpus = int(found[1])
            exact = series.pattern.format(vcpus)
            memory_gb = round(series.gb_per_vcpu * vcpus, 1)
            return SIZES.get(exact) or Size(name=exact, vcpus=vcpus, memory_gb=memory_gb, series=series)
    return None


def find(name: str) -> Size:
    """Return the size of that name, whatever its case. One that is not known yet is what its name says: the SKU API tells the
    rest before a machine is bought, and whether there is such a size at all.

    Raises:
        NotFound: Azure names no size so.
    """
    size = known(name) or _by_name(name)
    if size is not None:
        return size
    from difflib import get_close_matches

    near = get_close_matches(name, SIZES, n=1)
    advice = f"did you mean {near[0]}?" if near else "`evalfleet sizes` lists those of the table."
    raise NotFound(f'Azure names no VM size "{name}" (such as {DEFAULT_SIZE}); {advice}')


def is_nested(name: str) -> bool:
    """Whether KVM works inside such machines, by Microsoft's pages of sizes; the readiness check proves it on each."""
    found = _NAME.fullmatch(name)
    if found is None or _NEVER_NESTED.fullmatch(found[1]):
        return False
    version, features = int(found[5] or 1), found[4].lower()
    family = found[1].upper()
    if family in _NESTED_SINCE:
        return version >= _NESTED_SINCE[family] and "b" not in features
    return version >= (5 if "a" in features else 3) and "p" not in features


def _by_name(name: str) -> Size | None:
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    vcpus, features = int(found[3] or found[2]), found[4].lower()
    series = Series(
        pattern=name,
        family="",
        gb_per_vcpu=0,
        nested=is_nested(name),
        premium="s" in features,
        temporary_disk="d" in features,
        arm="p" in features,
    )
    return Size(name=name, vcpus=vcpus, memory_gb=0, series=series)
