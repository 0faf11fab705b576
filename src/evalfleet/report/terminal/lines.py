"""Styled lines of text, independent of what prints them.

A line is a list of spans; a span is printable text and a style. They are painted with a few escape codes, so that quick
commands load nothing for it, and nothing ever parses markup.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, TextIO

from evalfleet.config import is_terminal
from evalfleet.report import text


class Style(StrEnum):
    """What a span means."""

    PLAIN = ""
    STRONG = "bold"
    FAINT = "dim"
    GOOD = "green"
    BAD = "red"
    WARN = "yellow"
    NAME = "cyan"


STATE_STYLES = {
    "completed": Style.GOOD,
    "running": Style.NAME,
    "queued": Style.FAINT,
    "paused": Style.WARN,
    "cancelled": Style.WARN,
}

_CODES = {Style.STRONG: "1", Style.FAINT: "2", Style.GOOD: "32", Style.BAD: "31", Style.WARN: "33", Style.NAME: "36"}


class Span(NamedTuple):
    text: str
    style: Style = Style.PLAIN


Line = list[Span]


def line(*parts: str | Span) -> Line:
    return [part if isinstance(part, Span) else Span(part) for part in parts]


def apart(blocks: Iterable[list[Line]]) -> list[Line]:
    """The lines of all blocks, with an empty line between two that are not empty."""
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [*([[]] if lines else []), *block]
    return lines


def cells(spans: Line) -> int:
    return sum(text.width(span.text) for span in spans)


def fit(spans: Line, width: int) -> Line:
    """Cut a line to `width` cells."""
    fitted: Line = []
    for span in spans:
        clipped = text.clip(span.text, width)
        fitted.append(Span(clipped, span.style))
        width -= text.width(clipped)
        if clipped != span.text or width <= 0:
            break
    return fitted


def wrap(spans: Line, width: int, indent: int = 0) -> list[Line]:
    """Break a line between words; lines after the first are indented. A word that is too long is left whole."""
    lines: list[Line] = [[]]
    used = 0
    for span in spans:
        for word in re.findall(r"\s*\S+|\s+$", span.text):
            size = text.width(word)
            between = word[0].isspace() or bool(lines[-1] and lines[-1][-1].text[-1:].isspace())
            if used + size > width and used > indent and between:
                lines.append([Span(" " * indent)] if indent else [])
                word, used = word.lstrip(), indent
                size = text.width(word)
            lines[-1].append(Span(word, span.style))
            used += size
    return lines


def paint(lines: Iterable[Line], *, colour: bool) -> str:
    """Return the lines as one text that ends with a newline."""
    return "".join("".join(_painted(span, colour) for span in one).rstrip() + "\n" for one in lines)


def _painted(span: Span, colour: bool) -> str:
    code = _CODES.get(span.style) if colour and span.text.strip() else None
    return f"\x1b[{code}m{span.text}\x1b[0m" if code else span.text


def write(lines: Iterable[Line], stream: TextIO | None = None, *, colour: str = "never") -> None:
    """Print lines. `colour` is the setting: auto (only on a terminal), always or never."""
    out: TextIO = sys.stdout if stream is None else stream
    put(paint(lines, colour=colour == "always" or (colour == "auto" and is_terminal(out))), out)


def put(painted: str, out: TextIO) -> None:
    """Write text that the stream's encoding may not have."""
    try:
        out.write(painted)
    except UnicodeEncodeError:
        encoding = out.encoding or "ascii"
        out.write(painted.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


UNCUT = 10_000


def columns() -> int:
    """The terminal's width, or what COLUMNS says. Where neither is there nothing is cut or wrapped: what reads a pipe or a
    log can do that itself, and cannot bring back what was cut."""
    from evalfleet.config import environment

    if not environment().get("COLUMNS") and not is_terminal(sys.stdout):
        return UNCUT
    import shutil  # brings all archive formats

    return max(60, shutil.get_terminal_size((100, 24)).columns)


class Column(NamedTuple):
    title: str
    right: bool = False
    most: int | None = None  # cells at most on a terminal; such a column also shrinks where the table is too wide


_LEAST = 8  # cells that a column shrinks to
_LEAST_LAST = 20
_MOST_LINES = 3  # of a cell that is wrapped


def table(columns: Sequence[Column], rows: Sequence[Sequence[Span]], width: int, indent: int = 0) -> list[Line]:
    """Lay out rows under titles. A last column of text breaks between words; other rows take one line each.

    Nothing is cut where `width` is `UNCUT`.
    """
    widths = [
        max([text.width(column.title), *(text.width(row[i].text) for row in rows)]) for i, column in enumerate(columns)
    ]
    if width < UNCUT:
        widths = _fitted(columns, widths, width - indent - 2 * (len(columns) - 1))
    head = [Span(column.title, Style.FAINT) for column in columns]
    return [one for row in (head, *rows) for one in _laid_out(columns, widths, row, indent)]


def _fitted(columns: Sequence[Column], widest: Sequence[int], room: int) -> list[int]:
    """Widths whose sum is at most `room`, if that is possible."""
    widths = [min(cells_, column.most or cells_) for column, cells_ in zip(columns, widest, strict=True)]
    if not columns[-1].right:
        widths[-1] = min(widths[-1], max(_LEAST_LAST, room - sum(widths[:-1])))
    shrinking = [i for i, column in enumerate(columns[:-1]) if column.most]
    while sum(widths) > room and any(widths[i] > _LEAST for i in shrinking):
        widths[max(shrinking, key=lambda i: widths[i])] -= 1
    return widths


def _laid_out(columns: Sequence[Column], widths: Sequence[int], row: Sequence[Span], indent: int) -> list[Line]:
    laid: Line = [Span(" " * indent)] if indent else []
    for column, cells_, span in zip(columns[:-1], widths[:-1], row[:-1], strict=True):
        laid += [Span(text.pad(text.clip(span.text, cells_), cells_, right=column.right), span.style), Span("  ")]
    last, cells_ = row[-1], widths[-1]
    if columns[-1].right:
        return [[*laid, Span(text.pad(text.clip(last.text, cells_), cells_, right=True), last.style)]]
    before = Span(" " * cells(laid))
    first, *more = _broken(last, cells_)
    return [[*laid, first], *([before, one] for one in more)]


def _broken(span: Span, width: int) -> list[Span]:
    """A cell as at most `_MOST_LINES` lines; a word that is too long is cut in its middle."""
    words = re.sub(r"\S+", lambda word: text.clip_middle(word.group(), width), span.text)
    lines = ["".join(part.text for part in one) for one in wrap([Span(words)], width)]
    kept = [*lines[: _MOST_LINES - 1], " ".join(lines[_MOST_LINES - 1 :])] if len(lines) > _MOST_LINES else lines
    return [Span(text.clip(one, width), span.style) for one in kept]


def wrapped(words: str, width: int, indent: int = 0) -> str:
    """Plain text with line breaks between words."""
    return paint(wrap(line(words), width, indent), colour=False).rstrip("\n")
