"""Words and numbers as people read them. Everything that came from a task goes through `printable` before it is shown."""

from __future__ import annotations

import unicodedata

from evalfleet.answers.base import Range
from evalfleet.answers.summary import TaskCounts

DASH = "–"
NONE = "-"

# Controls, line and paragraph separators, and marks that reorder what a person sees. A joiner inside an emoji stays.
_UNSAFE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_REORDERING = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def printable(text: str) -> str:
    """Return `text` on one line, with everything that could move a cursor or hide text written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _is_unsafe(char) else char for char in text)


def _is_unsafe(char: str) -> bool:
    return unicodedata.category(char) in _UNSAFE or char in _REORDERING


def _escaped(char: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}.get(char) or (
        f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"
    )


def width(text: str) -> int:
    """Number of terminal cells that printable text takes."""
    return len(text) if text.isascii() else sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def clip(text: str, cells: int) -> str:
    """Return printable text that fits `cells`; what was cut is marked."""
    if cells <= 0:
        return ""
    if width(text) <= cells:
        return text
    kept, used = "", 0
    for char in text:
        used += _cells(char)
        if used > cells - 1:
            break
        kept += char
    return kept + "…"


def clip_middle(text: str, cells: int) -> str:
    """Like `clip`, for keys: these begin alike and end apart, so the middle is cut."""
    if width(text) <= cells:
        return text
    if cells < 8:
        return clip(text, cells)
    kept, used = "", 0
    for char in reversed(text):
        used += _cells(char)
        if used > (cells - 1) // 2:
            break
        kept = char + kept
    return clip(text, cells - width(kept)) + kept


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """Fill up with spaces; `right` aligns to the right."""
    fill = " " * max(0, cells - width(text))
    return fill + text if right else text + fill


def rest_of(tasks: TaskCounts) -> list[tuple[str, int]]:
    """The states besides a verdict that tasks are in, and how many are."""
    counts = (
        ("failed", tasks.failed),
        ("held", tasks.held),
        ("cancelled", tasks.cancelled),
        ("running", tasks.running),
        ("queued", tasks.queued),
    )
    return [(name, count) for name, count in counts if count]


def verdict(score: float, *, success: bool) -> str:
    """What a checker said, in a word or two: "passed", "not passed", "score 0.4"."""
    if success:
        return "passed"
    return f"score {score:g}" if score > 0 else "not passed"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share * 100:.1f}%"


def interval(bounds: Range | None) -> str:
    """Write an interval of shares in percent: "61.2–79.7%"."""
    return NONE if bounds is None else f"{bounds[0] * 100:.1f}{DASH}{bounds[1] * 100:.1f}%"


def money(usd: float) -> str:
    """Dollars with cents; with more digits where cents would say nothing."""
    if usd == 0 or abs(usd) >= 0.095:
        return f"${usd:,.2f}"
    return f"${usd:.4f}".rstrip("0") if abs(usd) >= 0.0001 else f"${usd:.1e}"


def span(seconds: float | None) -> str:
    """A duration in two units at most: "0.4s", "12s", "3m 05s", "2h 10m", "3d 4h"."""
    if seconds is None:
        return NONE
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600}h"


def age(seconds: float) -> str:
    """How long ago, in one unit: "now", "12s", "5m", "3h", "2d"."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 task", "2 tasks"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(count: int) -> str:
    """Bytes for people: "1.2 GB", "340 MB", "12 kB", "96 bytes"."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= least:
            value = count / least
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return f"{count} bytes"
