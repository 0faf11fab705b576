"""Builds wheels from the packages installed here, to copy them to machines that cannot reach a package index.

The same files always make the same wheel, whether the package is installed in editable mode or from a wheel.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from evalfleet.errors import ConfigError

_MOMENT = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT = frozenset(
    {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "WHEEL"}
)  # of a .dist-info, as pip writes it
_PURE = ("py3-none-any",)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


class Wheel(Struct, frozen=True, kw_only=True):
    """The name, digest and content of a wheel."""

    name: str
    data: bytes
    digest: str  # of what is in it, not of how it was packed

    def __repr__(self) -> str:
        return f"Wheel(name={self.name!r}, digest={self.digest!r})"


def plain_name(requirement: str) -> str:
    """The package that a requirement such as "miniwob==1.1.0" or "evalfleet[ssh]" is about, as pip compares names."""
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement


def extras_of(requirement: str) -> list[str]:
    found = re.match(r"[^\[;=<>!~ ]+\[([^\]]*)\]", requirement)
    return [word.strip() for word in found[1].split(",") if word.strip()] if found else []


@lru_cache(maxsize=64)
def wheel_of(name: str) -> Wheel:
    """The wheel of a package that is installed here. Raises ConfigError where it is not, or its files cannot be found."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise ConfigError(f"the package {name} is not installed here, so it cannot be copied to a host") from None
    title = f"{plain_name(found.name).replace('-', '_')}-{found.version}"
    tags = _tags(found)
    files = {_placed(path, title): content for path, content in _files(found)}
    if not any(not path.startswith(f"{title}.dist-info/") for path in files):
        raise ConfigError(f"the files of the package {name} cannot be found here; install it again")
    is_pure = all(tag.endswith("-none-any") for tag in tags)
    head = f"Wheel-Version: 1.0\nGenerator: evalfleet\nRoot-Is-Purelib: {str(is_pure).lower()}\n"
    files[f"{title}.dist-info/WHEEL"] = (head + "".join(f"Tag: {tag}\n" for tag in tags)).encode()
    record = _record(files, f"{title}.dist-info/RECORD")
    files[f"{title}.dist-info/RECORD"] = record
    parts = zip(*(tag.split("-", 2) for tag in tags), strict=True)
    suffix = "-".join(".".join(dict.fromkeys(part)) for part in parts)
    return Wheel(name=f"{title}-{suffix}.whl", data=_zipped(files), digest=hashlib.sha256(record).hexdigest())


def pins_of(requirements: Iterable[str]) -> dict[str, str]:
    """The installed versions of the requirements and all their dependencies, by name.

    Packages that are not installed here, for example because their marker does not apply, are left out.
    """
    pins: dict[str, str] = {}
    waiting = list(requirements)
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name, extras = plain_name(requirement), extras_of(requirement)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        pins[name] = found.version
        for line in found.requires or ():
            wanted = _EXTRA.search(line.partition(";")[2])
            step = line if wanted is None or wanted[1] in extras else None
            if step is not None and step not in seen:
                seen.add(step)
                waiting.append(step)
    return dict(sorted(pins.items()))


def _tags(found: Distribution) -> tuple[str, ...]:
    lines = (found.read_text("WHEEL") or "").splitlines()
    return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")) or _PURE


def _placed(path: str, title: str) -> str:
    """A file's path in the wheel. The metadata folder always has the same name, however the package was installed."""
    first, slash, rest = path.partition("/")
    return f"{title}.dist-info/{rest}" if first.endswith(".dist-info") else first + slash + rest


def _files(found: Distribution) -> Iterator[tuple[str, bytes]]:
    """The wheel's files, without those that pip writes itself."""
    recorded = found.files or []
    is_editable = bool(json.loads(found.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"))
    for path in recorded:
        first = path.parts[0]
        if first in ("..", "/") or path.suffix == ".pyc":
            continue
        if first.endswith(".dist-info"):
            if path.name not in _LEFT_OUT:
                yield path.as_posix(), path.read_binary()
        elif not is_editable:
            yield path.as_posix(), path.read_binary()
    if is_editable:
        for module in sorted({point.module.partition(".")[0] for point in found.entry_points}):
            yield from _sources(module)


def _sources(module: str) -> Iterator[tuple[str, bytes]]:
    """The source files of a package or module."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return
    if not spec.submodule_search_locations:
        yield Path(spec.origin).name, Path(spec.origin).read_bytes()
        return
    folder = Path(spec.origin).parent
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if (
            path.is_file()
            and path.suffix != ".pyc"
            and not any(part.startswith((".", "__pycache__")) for part in below.parts)
        ):
            yield f"{module}/{below.as_posix()}", path.read_bytes()


def _record(files: dict[str, bytes], own: str) -> bytes:
    def digest(content: bytes) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")

    lines = [f"{_quoted(path)},sha256={digest(data)},{len(data)}\n" for path, data in sorted(files.items())]
    return ("".join(lines) + f"{own},,\n").encode()


def _quoted(path: str) -> str:
    return f'"{path}"' if "," in path else path


def _zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return out.getvalue()
