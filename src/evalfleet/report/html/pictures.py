"""Pictures for a page that is one file: as data, within a limit for all of them together."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from evalfleet.hosts.attempt_files import read_inside
from evalfleet.report.trajectory import Film

_LARGEST = 8 << 20
# Drawings that may hold scripts are not among them.
_TYPES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class Album(Struct):
    """Takes pictures while there is room; the same picture is held once."""

    most: int  # characters of data
    data: list[str] = field(default_factory=list[str])
    used: int = 0
    _known: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, folder: Path, name: str, most: int | None = None) -> int | None:
        """Return the number of a picture among an attempt's artifacts; None if it is none, or there is no room for it below `most`."""
        room = (self.most if most is None else most) - self.used
        content = read_inside(folder, f"artifacts/{name}", min(_LARGEST, room)) if room > 0 else None
        if content is None:
            return None
        kind = next((kind for mark, kind in _TYPES if content.startswith(mark)), None)
        if kind is None:
            return None
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._known:
            encoded = f"data:{kind};base64,{base64.b64encode(content).decode()}"
            if len(encoded) > room:
                return None
            self._known[digest] = len(self.data)
            self.data.append(encoded)
            self.used += len(encoded)
        return self._known[digest]


def fill(album: Album, films: Sequence[tuple[Path, Film]]) -> list[list[int | None]]:
    """Choose the pictures of films, each with its attempt's folder, the most important first; returns their numbers.

    Half of the room is for the last picture of every film, so that a few long films do not take the place of all others.
    """
    chosen: list[list[int | None]] = [[None] * len(film.frames) for _, film in films]
    for (folder, film), numbers in zip(films, chosen, strict=True):
        last = max((index for index, frame in enumerate(film.frames) if frame.picture), default=None)
        if last is not None:
            numbers[last] = _add(album, folder, film.frames[last].picture, album.most // 2)
    for (folder, film), numbers in zip(films, chosen, strict=True):
        for index, frame in enumerate(film.frames):
            if numbers[index] is None:
                numbers[index] = _add(album, folder, frame.picture, None)
    return chosen


def _add(album: Album, folder: Path, name: str | None, most: int | None) -> int | None:
    return album.add(folder, name, most) if name else None
