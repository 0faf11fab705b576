"""Where the values of secrets come from: the environment, a file for each, or a program that is asked.

Values go to tasks only: keep them out of every record, log and message. Each controller has its own sources, so that one may lack what
another has.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from evalfleet.config.core_tables import SecretsSettings
from evalfleet.errors import MissingSecret

_COMMAND_S = 15.0
_LARGEST = 1 << 16
_PLAIN = re.compile(r"[\w@][\w.@+-]*")


class _Kept(Struct):
    value: str | None
    until: float


class Secrets(Struct):
    """The sources of one process, in the order in which they are asked. Used by several threads."""

    settings: SecretsSettings = SecretsSettings()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.monotonic
    _kept: dict[tuple[str, str, str], _Kept] = field(default_factory=dict[tuple[str, str, str], _Kept])
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def values(self, names: Iterable[str], *, user: str = "", project: str = "") -> dict[str, str]:
        """The values of these secrets, of that user and project. Raises MissingSecret, which names those that no source has."""
        wanted = sorted(set(names))
        found = {name: value for name in wanted if (value := self._value(name, user, project)) is not None}
        lacking = [name for name in wanted if name not in found]
        if lacking:
            secrets = "the secrets" if len(lacking) > 1 else "the secret"
            raise MissingSecret(f"{self.lack} {secrets} {', '.join(lacking)}; {self.remedy(lacking)}")
        return found

    def missing(self, names: Iterable[str], *, user: str = "", project: str = "") -> list[str]:
        """Those that no source has, sorted."""
        return [name for name in sorted(set(names)) if self._value(name, user, project) is None]

    @property
    def lack(self) -> str:
        """ "the environment lacks", or which other sources do."""
        places = ["the environment"] if self.settings.environment else []
        places += [f"[secrets] {name}" for name in ("file", "command") if getattr(self.settings, name)]
        return f"{' and '.join(places) or '[secrets]'} {'lack' if len(places) > 1 else 'lacks'}"

    def remedy(self, lacking: list[str]) -> str:
        """What to do about secrets that are missing."""
        them = "them" if len(lacking) > 1 else "it"
        return f"set {them} (export {lacking[0]}=…)" if self.settings.environment else f"put {them} there"

    def _value(self, name: str, user: str, project: str) -> str | None:
        if self.settings.environment and (value := self.environ.get(name)):  # an empty one is how CI systems pass none
            return value
        words = {"name": name, "user": user, "project": project}
        # A name becomes a part of a path: one that could lead elsewhere has no secrets.
        if not self._asks or any(word and not _PLAIN.fullmatch(word) for word in words.values()):
            return None
        key = (name, user, project)
        with self._asking:  # one program at a time
            kept = self._kept.get(key)
            if kept is None or kept.until <= self.clock():
                value = self._in_file(words) or self._from_command(words)
                kept = self._kept[key] = _Kept(value, self.clock() + self.settings.keep_s)
            return kept.value

    @property
    def _asks(self) -> bool:
        return self.settings.file is not None or bool(self.settings.command)

    def _in_file(self, words: Mapping[str, str]) -> str | None:
        if self.settings.file is None:
            return None
        with (
            suppress(OSError, UnicodeDecodeError, ValueError),
            Path(_filled(self.settings.file, words)).open("rb") as file,
        ):
            return file.read(_LARGEST).decode().rstrip("\r\n") or None
        return None

    def _from_command(self, words: Mapping[str, str]) -> str | None:
        if not self.settings.command:
            return None
        command = [_filled(word, words) for word in self.settings.command]
        with suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
            done = subprocess.run(
                command, capture_output=True, timeout=_COMMAND_S, check=True, stdin=subprocess.DEVNULL
            )
            return done.stdout[:_LARGEST].decode().rstrip("\r\n") or None
        return None


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text
