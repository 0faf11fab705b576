"""Words, numbers and lines as people see them."""

from __future__ import annotations

import io

import pytest

from evalfleet.report import text
from evalfleet.report.terminal import lines
from evalfleet.report.terminal.lines import Column, Span, Style


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain_1", "plain_1"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31mred", "\\e[31mred"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("naïve 日本 👩‍💻", "naïve 日本 👩‍💻"),
    ],
)
def test_printable_shows_what_could_move_a_cursor(raw: str, shown: str) -> None:
    assert text.printable(raw) == shown


def test_width_counts_cells() -> None:
    assert text.width("abc") == 3
    assert text.width("日本") == 4
    assert text.width("e\u0301") == 1


@pytest.mark.parametrize("cells", range(8))
def test_clip_always_fits(cells: int) -> None:
    assert text.width(text.clip("a日本語b", cells)) <= cells


def test_clip_marks_what_was_cut() -> None:
    assert text.clip("abcdef", 4) == "abc…"
    assert text.clip("abcd", 4) == "abcd"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (-3, "0.0s"),
        (0.42, "0.4s"),
        (9.96, "10s"),
        (59.6, "1m 00s"),
        (185, "3m 05s"),
        (3600, "1h 00m"),
        (7800, "2h 10m"),
        (273_600, "3d 4h"),
    ],
)
def test_span(seconds: float | None, shown: str) -> None:
    assert text.span(seconds) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(0, "$0.00"), (1234.5, "$1,234.50"), (0.1, "$0.10"), (0.0123, "$0.0123"), (0.02, "$0.02"), (0.00001, "$1.0e-05")],
)
def test_money(usd: float, shown: str) -> None:
    assert text.money(usd) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "now"), (12.9, "12s"), (300, "5m"), (7300, "2h"), (200_000, "2d")]
)
def test_age(seconds: float, shown: str) -> None:
    assert text.age(seconds) == shown


def test_nothing_is_coloured_unless_wanted() -> None:
    stream = io.StringIO()
    lines.write([lines.line(Span("bad", Style.BAD))], stream, colour="auto")
    assert stream.getvalue() == "bad\n"
    lines.write([lines.line(Span("bad", Style.BAD))], stream, colour="always")
    assert stream.getvalue() == "bad\n\x1b[31mbad\x1b[0m\n"


def test_a_stream_that_cannot_write_a_sign_gets_its_escape() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    lines.write([lines.line("日 –")], stream)
    assert raw.getvalue() == b"\\u65e5 \\u2013\n"


LONG = [
    [Span("a-very-long-name-of-a-run"), Span("1"), Span("many words that say what went wrong and what to do about it")]
]
HEADS = [Column("name", most=20), Column("n", right=True), Column("why")]


def test_table_on_a_terminal_fits_and_breaks_between_words() -> None:
    shown = lines.paint(lines.table(HEADS, LONG, 60), colour=False).splitlines()
    assert shown[1:] == [
        "a-very-long-name-of…  1  many words that say what went wrong",
        "                         and what to do about it",
    ]
    narrow = lines.paint(lines.table(HEADS, LONG, 40), colour=False).splitlines()
    assert max(map(len, narrow)) <= 40
    assert len(narrow) == 4


def test_table_off_a_terminal_cuts_nothing() -> None:
    shown = lines.paint(lines.table(HEADS, LONG, lines.UNCUT), colour=False).splitlines()
    assert shown[1] == "  ".join(span.text for span in LONG[0])


def test_table_aligns_and_fits() -> None:
    rows = [[Span("a"), Span("1"), Span("x" * 50)], [Span("日本"), Span("22"), Span("y")]]
    made = lines.table([Column("k"), Column("n", right=True), Column("why")], rows, 30)
    shown = lines.paint(made, colour=False).splitlines()
    assert shown[0] == "k      n  why"
    assert shown[1] == "a      1  xxxxxxxxxx…xxxxxxxxx"
    assert shown[2] == "日本  22  y"
    assert all(lines.cells(one) <= 30 for one in made)


def test_wrap_breaks_between_words_and_keeps_styles() -> None:
    wrapped = lines.wrap(lines.line("one two ", Span("three four", Style.STRONG)), 11, indent=2)
    assert [lines.paint([one], colour=False) for one in wrapped] == ["one two\n", "  three\n", "  four\n"]
    assert wrapped[1][-1].style is Style.STRONG


def test_fit_cuts_across_spans() -> None:
    assert lines.fit(lines.line("abc", Span("def")), 5) == [Span("abc"), Span("d…")]


def test_keys_are_cut_in_the_middle():
    key = "click-checkboxes-transfer-with-a-long-name_17"
    assert text.clip_middle(key, 20) == "click-chec…g-name_17"
    assert [text.width(text.clip_middle(key, cells)) for cells in (0, 1, 7, 8, 9, 44)] == [0, 1, 7, 8, 9, 44]
    assert text.clip_middle(key, 45) == key
    assert text.width(text.clip_middle("漢字" * 20, 15)) <= 15


@pytest.mark.parametrize(
    ("score", "success", "shown"),
    [(1.0, True, "passed"), (0.9, True, "passed"), (0.4, False, "score 0.4"), (0.0, False, "not passed")],
)
def test_a_verdict_in_words(score: float, success: bool, shown: str):
    assert text.verdict(score, success=success) == shown
