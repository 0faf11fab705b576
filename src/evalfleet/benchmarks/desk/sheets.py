"""Spreadsheets as plain rows: reads .csv, .ods and .xlsx, writes .ods, with the standard library alone. Pure."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from msgspec import Struct

Value = str | float
SUFFIXES = (".csv", ".ods", ".xlsx")

_CELL = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})")
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_MIME = "application/vnd.oasis.opendocument.spreadsheet"
_MANIFEST = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0" manifest:version="1.2">'
    f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{_MIME}"/>'
    '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
    "</manifest:manifest>"
)


class Unreadable(Exception):
    """The bytes are not a spreadsheet of that type."""


class Cell(Struct, frozen=True, kw_only=True):
    value: Value = ""
    formula: str = ""  # as the file writes it, such as "of:=SUM([.B2:.B4])"; empty for a plain value


class Area(Struct, frozen=True, kw_only=True):
    """A rectangle of cells, counted from 0, both ends included."""

    top: int
    left: int
    bottom: int
    right: int


def area(text: str) -> Area:
    """Read "B2" or "A1:C3". Raises ValueError."""
    first, colon, last = text.partition(":")
    top, left = _place(first)
    bottom, right = _place(last) if colon else (top, left)
    if bottom < top or right < left:
        raise ValueError(f"{text} ends before it begins")
    return Area(top=top, left=left, bottom=bottom, right=right)


def read(data: bytes, suffix: str, sheet: int, wanted: Area) -> list[list[Cell]]:
    """Return the wanted cells, row by row; what lies beyond the sheet's end is empty.

    Args:
        suffix: one of SUFFIXES.
        sheet: from 1; a CSV file has one.

    Raises:
        Unreadable: it is not such a file, or has no such sheet.
    """
    readers = {".csv": _csv, ".ods": _ods, ".xlsx": _xlsx}
    try:
        found = readers[suffix](data, sheet, wanted)
    except (zipfile.BadZipFile, KeyError, IndexError, ValueError, ElementTree.ParseError, csv.Error) as error:
        raise Unreadable(str(error)) from error
    rows = range(wanted.top, wanted.bottom + 1)
    columns = range(wanted.left, wanted.right + 1)
    return [[found.get((row, column), Cell()) for column in columns] for row in rows]


def write_ods(rows: Sequence[Sequence[Value]]) -> bytes:
    """Return a spreadsheet file with one sheet."""
    body = "".join(f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>" for row in rows)
    content = (
        '<?xml version="1.0" encoding="UTF-8"?><office:document-content'
        ' xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
        ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
        ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.2"><office:body>'
        f'<office:spreadsheet><table:table table:name="Sheet1">{body}</table:table></office:spreadsheet>'
        "</office:body></office:document-content>"
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mimetype", _MIME)  # first and not compressed: that is how the format is known
        archive.writestr("META-INF/manifest.xml", _MANIFEST)
        archive.writestr("content.xml", content)
    return buffer.getvalue()


def _place(text: str) -> tuple[int, int]:
    match = _CELL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a cell such as B2")
    column = 0
    for letter in match[1]:
        column = column * 26 + ord(letter) - ord("A") + 1
    return int(match[2]) - 1, column - 1


_Found = dict[tuple[int, int], Cell]


def _csv(data: bytes, sheet: int, _wanted: Area) -> _Found:
    if sheet != 1:
        raise IndexError("a CSV file has one sheet")
    rows = csv.reader(io.StringIO(data.decode("utf-8-sig")))
    return {(r, c): Cell(value=_number(text)) for r, row in enumerate(rows) for c, text in enumerate(row)}


def _ods(data: bytes, sheet: int, wanted: Area) -> _Found:
    root = _part(data, "content.xml")
    table = root.findall(f".//{_TABLE}table")[sheet - 1]
    found: _Found = {}
    rows = _repeated(table.iter(f"{_TABLE}table-row"), "number-rows-repeated", wanted.bottom)
    for row, line in rows:
        cells = _repeated(line, "number-columns-repeated", wanted.right)
        found.update({(row, column): _from_ods(cell) for column, cell in cells})
    return found


def _repeated(
    elements: Iterable[ElementTree.Element], attribute: str, last: int
) -> Iterator[tuple[int, ElementTree.Element]]:
    """Number the elements; one may stand for many, of which no more than are wanted are given."""
    place = 0
    for element in elements:
        count = int(element.get(f"{_TABLE}{attribute}", "1"))
        for _ in range(min(count, last - place + 1)):
            yield place, element
            place += 1
        if place > last:
            return


def _from_ods(cell: ElementTree.Element) -> Cell:
    kind = cell.get(f"{_OFFICE}value-type", "string")
    value: Value
    if kind in ("float", "percentage", "currency"):
        value = float(cell.get(f"{_OFFICE}value", ""))
    else:
        value = "\n".join("".join(line.itertext()) for line in cell.findall(f"{_TEXT}p"))
    return Cell(value=value, formula=cell.get(f"{_TABLE}formula", ""))


def _ods_cell(value: Value) -> str:
    if isinstance(value, str):
        kind, text = 'office:value-type="string"', escape(value)
    else:
        text = repr(value)
        kind = f'office:value-type="float" office:value="{text}"'
    return f"<table:table-cell {kind}><text:p>{text}</text:p></table:table-cell>" if text else "<table:table-cell/>"


def _xlsx(data: bytes, sheet: int, _wanted: Area) -> _Found:
    shared: list[str] = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if "xl/sharedStrings.xml" in archive.namelist():
            strings = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
            shared = ["".join(item.itertext()) for item in strings.iter(f"{_MAIN}si")]
        page = ElementTree.fromstring(archive.read(f"xl/worksheets/sheet{sheet}.xml"))
    return {_place(cell.get("r", "")): _from_xlsx(cell, shared) for cell in page.iter(f"{_MAIN}c")}


def _from_xlsx(cell: ElementTree.Element, shared: Sequence[str]) -> Cell:
    text = cell.findtext(f"{_MAIN}v", "")
    formula = cell.findtext(f"{_MAIN}f", "")
    kind = cell.get("t", "n")
    if kind == "s":
        return Cell(value=shared[int(text)], formula=formula)
    if kind == "inlineStr":
        return Cell(value="".join(cell.itertext()), formula=formula)
    return Cell(value=_number(text) if kind == "n" else text, formula=formula)


def _part(data: bytes, name: str) -> ElementTree.Element:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return ElementTree.fromstring(archive.read(name))


def _number(text: str) -> Value:
    """Return a number where the text is one in plain writing; "007" and "1e5" stay text."""
    return float(text) if re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", text) else text
