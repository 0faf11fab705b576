"""The films of a run's attempts as data for the HTML page: text of all, pictures of those that there is room for."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct, field

from evalfleet.errors import FilesUnreachable
from evalfleet.files.base import AttemptFiles, read
from evalfleet.files.folder import FolderFiles
from evalfleet.files.home import home_files
from evalfleet.report import text
from evalfleet.report.timeline import look_of
from evalfleet.report.trajectory import Film, Frame, film_of

MOST_PICTURES = 20_000_000
_MOST_FRAMES = 100_000
_LARGEST = 8 << 20
# Drawings that may hold scripts are not among them.
_TYPES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_ORDER = {"own": 0, "infra": 1, "wrong": 2, "off": 3, "pass": 4}
"""What a person looks for first: what failed, then what was wrong."""


class Filmstrips(Struct, frozen=True, kw_only=True):
    """`films` are rows for the page's script; `places` says which attempt (task number, number) has which of them."""

    films: list[list[Any]]
    pictures: list[str]
    places: dict[tuple[int, int], int]
    missing: int  # pictures that are not in the page
    films_left: int  # attempts whose steps are not in the page, because there are too many

    def note(self, most: int) -> str:
        """Say what was left out, and how to get it; nothing where all is there."""
        parts: list[str] = []
        if self.missing:
            parts.append(
                f"{text.count(self.missing, 'screenshot')} {'is' if self.missing == 1 else 'are'} not in this page, which "
                f"holds {most / 1e6:g} MB of them, those of failures first; --pictures MB takes in more. All of them lie in "
                "the home folder, under the path shown with each attempt."
            )
        if self.films_left:
            parts.append(f"The steps of {text.count(self.films_left, 'attempt')} are left out, too.")
        return " ".join(parts)


NONE = Filmstrips(films=[], pictures=[], places={}, missing=0, films_left=0)


def filmstrips(
    home: Path, run: str, keys: Mapping[int, str], attempts: Iterable[dict[str, Any]], *, most: int, beside: Path | None
) -> Filmstrips:
    """Read the films of all attempts that have ended.

    Args:
        keys: of the tasks, by their numbers.
        attempts: the store's rows.
        most: characters that the pictures may take together.
        beside: the folder where the page will lie, for links to what is not in it; None where that is not known.
    """
    found: list[tuple[tuple[int, int], AttemptFiles, Film]] = []
    kept, album = home_files(home), Album(most)
    frames = left = 0
    for one in sorted(attempts, key=lambda one: _ORDER.get(look_of(one), 5)):
        if one["state"] != "ended":
            continue
        place = (one["task_number"], one["number"])
        files = film = None
        try:
            files = None if album.is_cut_off else kept.get(run, keys[place[0]], place[1])
            film = None if files is None else film_of(files)
        except FilesUnreachable:
            album.is_cut_off = True
        left += album.is_cut_off
        if files is None or film is None or album.is_cut_off:
            continue
        frames += len(film.frames)
        if frames > _MOST_FRAMES:
            left += 1
            continue
        found.append((place, files, film))
    chosen = fill(album, [(files, film) for _, files, film in found])
    films: list[list[Any]] = []
    missing = 0
    for (_, files, film), numbers in zip(found, chosen, strict=True):
        rows = [_row(frame, number) for frame, number in zip(film.frames, numbers, strict=True)]
        missing += sum(
            frame.picture is not None and number is None for frame, number in zip(film.frames, numbers, strict=True)
        )
        films.append([film.goal, film.cut, _link(files, beside), rows])
    places = {place: index for index, (place, _, _) in enumerate(found)}
    return Filmstrips(films=films, pictures=album.data, places=places, missing=missing, films_left=left)


def _row(frame: Frame, picture: int | None) -> list[Any]:
    name = None if frame.picture is None or picture is not None else text.printable(frame.picture[:255])
    return [frame.step, frame.at_s, frame.action, frame.note, frame.tokens, frame.cost_usd, picture, name, frame.points]


def _link(files: AttemptFiles, beside: Path | None) -> str | None:
    """A relative address, which stays right if home and page move together. None where the files are not on this machine."""
    if beside is None or not isinstance(files, FolderFiles):
        return None
    path = os.path.relpath((files.folder / "artifacts").resolve(), beside.resolve())
    return "".join(f"{quote(part)}/" for part in Path(path).parts)


class Album(Struct):
    """Takes pictures while there is room; the same picture is held once."""

    most: int  # characters of data
    data: list[str] = field(default_factory=list[str])
    used: int = 0
    is_cut_off: bool = False  # the place of the files did not answer; it is not asked again
    _known: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, files: AttemptFiles, name: str, most: int | None = None) -> int | None:
        """Return the number of a picture among an attempt's artifacts; None if it is none, or there is no room for it below `most`."""
        room = (self.most if most is None else most) - self.used
        try:
            content = None if room <= 0 or self.is_cut_off else read(files, f"artifacts/{name}", min(_LARGEST, room))
        except FilesUnreachable:
            self.is_cut_off, content = True, None
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


def fill(album: Album, films: Sequence[tuple[AttemptFiles, Film]]) -> list[list[int | None]]:
    """Choose the pictures of films, each with its attempt's files, the most important first; returns their numbers.

    Half of the room is for the last picture of every film, so that a few long films do not take the place of all others.
    """
    chosen: list[list[int | None]] = [[None] * len(film.frames) for _, film in films]
    for (files, film), numbers in zip(films, chosen, strict=True):
        last = max((index for index, frame in enumerate(film.frames) if frame.picture), default=None)
        if last is not None:
            numbers[last] = _add(album, files, film.frames[last].picture, album.most // 2)
    for (files, film), numbers in zip(films, chosen, strict=True):
        for index, frame in enumerate(film.frames):
            if numbers[index] is None:
                numbers[index] = _add(album, files, frame.picture, None)
    return chosen


def _add(album: Album, files: AttemptFiles, name: str | None, most: int | None) -> int | None:
    return album.add(files, name, most) if name else None
