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
    import shutil

    from evalfleet.config import environment

    if not environment().get("COLUMNS") and not is_terminal(sys.stdout):
        return UNCUT
    return max(60, shutil.get_terminal_size((100, 24)).columns)


class Column(NamedTuple):
    title: str
    right: bool = False
    most: int | None = None  # cells at most; None: as wide as its content


def table(columns: Sequence[Column], rows: Sequence[Sequence[Span]], width: int, indent: int = 0) -> list[Line]:
    """Lay out rows under titles. The last column takes what is left of `width`."""
    widths = [
        min(max([text.width(column.title), *(text.width(row[i].text) for row in rows)]), column.most or width)
        for i, column in enumerate(columns)
    ]
    used = indent + sum(widths[:-1]) + 2 * (len(columns) - 1)
    widths[-1] = min(widths[-1], max(8, width - used))
    head = [Span(column.title, Style.FAINT) for column in columns]
    return [_laid_out(columns, widths, row, indent) for row in (head, *rows)]


def _laid_out(columns: Sequence[Column], widths: Sequence[int], row: Sequence[Span], indent: int) -> Line:
    laid: Line = [Span(" " * indent)] if indent else []
    for i, (column, cells_, span) in enumerate(zip(columns, widths, row, strict=True)):
        shown = text.clip(span.text, cells_)
        last = i == len(columns) - 1 and not column.right
        laid.append(Span(shown if last else text.pad(shown, cells_, right=column.right), span.style))
        if i < len(columns) - 1:
            laid.append(Span("  "))
    return laid
