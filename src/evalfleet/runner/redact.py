"""Replaces secret values by their names, in texts, JSON values and streams."""

from __future__ import annotations

import json
import re

from .jsontext import as_list, as_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MIN_BYTES = 4  # shorter values would blank half of any log
MIN_LINE = 16  # bytes of a line that says of which secret it is
MOST_LINES = 200  # of one secret; the longest. A key of 16,384 bits has as many
_LINE_ENDS = re.compile(r"[\r\n]+|(?:\\r)?\\n")  # also as programs write them into one line
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


def _quote(value: bytes, keep: frozenset[int], form: str) -> bytes:
    return b"".join(bytes((byte,)) if byte in keep else (form % byte).encode() for byte in value)


def _escaped(value: str, ascii_only: bool) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogateescape")


def variants(value: str) -> set[bytes]:
    """The usual encodings of a value: raw, JSON-escaped, URL-quoted."""
    raw = value.encode("utf-8", "surrogateescape")
    found = {raw}
    for ascii_only in (True, False):
        found.add(_escaped(value, ascii_only))
    for keep in (_UNRESERVED, _UNRESERVED | frozenset(b"/")):
        for form in ("%%%02X", "%%%02x"):
            quoted = _quote(raw, keep, form)
            found.update((quoted, quoted.replace(b"%20", b"+")))
    return found


def lines_of(value: str) -> list[str]:
    """The lines of a multi-line value, such as a PEM key, that are secret themselves; the key's BEGIN and END lines are not."""
    lines = [line.strip() for line in _LINE_ENDS.split(value)]
    found = {line for line in lines if len(line) >= MIN_LINE and not line.startswith("-----")}
    return sorted(found, key=lambda line: (-len(line), line))[:MOST_LINES] if len(lines) > 1 else []


class Redactor:
    """Holds the secrets of one attempt. False if there are none."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._names: dict[bytes, bytes] = {}
        for name, value in secrets.items():
            if len(value.encode("utf-8", "surrogateescape")) < MIN_BYTES:
                continue
            shown = b"[secret %s]" % name.encode()
            for variant in variants(value):
                self._names.setdefault(variant, shown)
            for line in lines_of(value):
                for ascii_only in (True, False):
                    self._names.setdefault(_escaped(line, ascii_only), shown)
                self._names.setdefault(line.encode("utf-8", "surrogateescape"), shown)
        # longest first, so that a secret that begins with another one is replaced as a whole
        self.needles = sorted(self._names, key=lambda needle: (-len(needle), needle))
        self.longest = len(self.needles[0]) if self.needles else 0
        self.pattern = re.compile(b"|".join(re.escape(needle) for needle in self.needles)) if self.needles else None
        self._begun: dict[int, list[bytes]] = {}  # by the first byte, longest first
        for needle in self.needles:
            self._begun.setdefault(needle[0], []).append(needle)
        firsts = b"".join(re.escape(bytes((first,))) for first in sorted(self._begun))
        self.starts = re.compile(b"[" + firsts + b"]") if firsts else None

    def __bool__(self) -> bool:
        return self.pattern is not None

    def named(self, match: re.Match[bytes]) -> bytes:
        return self._names[match.group()]

    def may_begin(self, tail: bytes) -> bool:
        """Whether more data could turn it into a secret, or into a longer one."""
        for needle in self._begun.get(tail[0], ()):
            if len(needle) <= len(tail):
                return False
            if needle.startswith(tail):
                return True
        return False

    def clean(self, data: bytes) -> bytes:
        return self.pattern.sub(self.named, data) if self.pattern else data

    def finds(self, data: bytes) -> bool:
        return self.pattern is not None and self.pattern.search(data) is not None

    def text(self, text: str) -> str:
        if not self.pattern:
            return text
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:
        """A JSON value with every string and key cleaned; a number that is a secret becomes its name."""
        if not self.pattern:
            return value
        if isinstance(value, str):
            return self.text(value)
        items = as_list(value)
        if items is not None:
            return [self.value(item) for item in items]
        fields = as_object(value)
        if fields is not None:
            return {self.text(key): self.value(item) for key, item in fields.items()}
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            name = self._names.get(repr(value).encode())
            return value if name is None else name.decode()
        return value


class RedactedStream:
    """Redacts a stream chunk by chunk; the joined output equals the redaction of the joined input.

    It holds back only a tail that may be the start of a secret.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        redactor = self._redactor
        if redactor.pattern is None:
            return chunk
        data = self._held + chunk
        out: list[bytes] = []
        position = 0
        while True:
            hold = self._hold(data, position)
            match = redactor.pattern.search(data, position)
            if match is None or match.start() >= hold:
                out.append(data[position:hold])
                self._held = data[hold:]
                return b"".join(out)
            out.append(data[position : match.start()])
            out.append(redactor.named(match))
            position = match.end()

    def flush(self) -> bytes:
        """What is still held back at the end of the stream."""
        rest, self._held = self._held, b""
        return self._redactor.clean(rest)

    def _hold(self, data: bytes, position: int) -> int:
        """The first offset from which the data could still become a (longer) secret."""
        redactor = self._redactor
        assert redactor.starts is not None
        place = max(position, len(data) - redactor.longest + 1)
        while True:
            match = redactor.starts.search(data, place)
            if match is None:
                return len(data)
            place = match.start()
            if redactor.may_begin(data[place:]):
                return place
            place += 1
