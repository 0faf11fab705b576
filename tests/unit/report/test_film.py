"""Film strips: what is read of an attempt's files, in words, and which pictures get into the page."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.report_builders import RunBuilder

from evalfleet.actions import Click, Drag, Move, Press, Scroll, Wait, Write, to_json
from evalfleet.files.folder import FolderFiles
from evalfleet.layout import Home
from evalfleet.model import Kind, TaskState
from evalfleet.report.html.filmstrips import Album
from evalfleet.report.html.page import page
from evalfleet.report.trajectory import film_of, in_words, points


def png(shade: int, size: int = 0) -> bytes:
    """A picture of one pixel, and as many bytes more as wanted."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixel = zlib.compress(bytes([0, shade]))
    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"tEXt", b"x" * size) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def leave(
    builder: RunBuilder, key: str, shades: list[int], *, size: int = 0, note: str = "why", number: int = 1
) -> Path:
    """Files of an attempt as a benchmark leaves them, a step per shade; returns the artifacts."""
    folder = Home(builder.home).attempt(builder.run.id, key, number) / "artifacts"
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = [{"at_s": 0.1, "benchmark": "b", "task": "t", "seed": 0, "goal": "Click it."}]
    for step, shade in enumerate(shades, 1):
        (folder / f"step_{step}.png").write_bytes(png(shade, size))
        action = [to_json(Click(x=3, y=4))]
        lines.append({"at_s": step, "step": step, "screenshot": f"step_{step}.png", "action": action, "note": note})
    lines.append({"at_s": 9, "score": 0.5, "success": False, "reason": "max_steps", "screenshot": "final.png"})
    (folder / "final.png").write_bytes(png(255, size))
    (folder / "trajectory.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def data_of(text: str, name: str) -> Any:
    begin = text.index(f'id="{name}">') + len(f'id="{name}">')
    return json.loads(text[begin : text.index("</script>", begin)])


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Click(x=80, y=120.4), "click at 80, 120"),
        (Click(x=1, y=2, count=2, held=("Control",)), "Control+double click at 1, 2"),
        (Move(x=5, y=6), "move to 5, 6"),
        (Drag(x=1, y=2, to_x=30, to_y=40), "drag from 1, 2 to 30, 40"),
        (Scroll(x=1, y=2, dy=-50, dx=10), "scroll up by 50 and right by 10 at 1, 2"),
        (Write(text='say "hi"'), 'type "say \\"hi\\""'),
        (Press(key="a", times=3, held=("Control", "Shift")), "press Control+Shift+a 3 times"),
        (Wait(seconds=0.5), "wait 0.5 s"),
    ],
)
def test_actions_in_words(action: Any, words: str):
    assert in_words(json.loads(json.dumps(to_json(action)))) == words


def test_other_programs_actions_are_shown_as_they_are():
    assert in_words("computer.mouse.move(id=7)") == "computer.mouse.move(id=7)"
    assert in_words([{"do": "press", "key": "Enter"}, {"tool": "x"}]) == 'press Enter, then {"tool": "x"}'
    assert in_words([{"do": "wait", "seconds": 1}] * 25).endswith("wait 1 s, then and 5 more")
    assert points([{"do": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4}, {"x": "1", "y": 2}, "x"]) == [(1, 2), (3, 4)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["do", "x", "y", "held", "count"]), inner)
    ),
    max_leaves=8,
)
members = st.sampled_from(
    ["step", "screenshot", "action", "note", "tokens", "cost_usd", "at_s", "score", "goal", "reason"]
)


@given(line=st.dictionaries(members, json_values))
def test_no_line_breaks_a_film(line: dict[str, Any], tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("attempt")
    (folder / "artifacts").mkdir()
    good = '{"step": 1, "screenshot": "a.png"}\n[1]\n{"half'
    (folder / "artifacts" / "trajectory.jsonl").write_text(json.dumps(line) + "\n" + good)
    film = film_of(FolderFiles(folder))
    assert film is not None
    assert film.frames[-1].picture == "a.png"
    json.dumps([(frame.action, frame.note, frame.points) for frame in film.frames], allow_nan=False)


def test_what_a_film_tells(tmp_path: Path):
    (tmp_path / "artifacts").mkdir()
    lines = [
        {"goal": "g\n\x1b"},
        {
            "step": 1,
            "note": "n" * 5000,
            "tokens": {"in": 1200, "out": 5, "bad": "x"},
            "cost_usd": 0.25,
            "action": "do()",
        },
        {"step": 2, "tokens": 77, "cost_usd": -1},
        {"score": 1},
    ]
    (tmp_path / "artifacts" / "trajectory.jsonl").write_text("\n".join(map(json.dumps, lines)))
    film = film_of(FolderFiles(tmp_path))
    assert film is not None
    assert film.goal == "g\\n\\e"
    first, second, last = film.frames
    assert (first.tokens, first.cost_usd, first.action, len(first.note)) == ("1,200 in, 5 out", 0.25, "do()", 1001)
    assert (second.tokens, second.cost_usd) == ("77", 0.0)
    assert (last.step, last.note) == (None, "end: score 1")


def test_event_lines_do_where_there_is_no_trajectory(tmp_path: Path):
    lines = [
        {"ready": True, "note": "the goal"},
        {"step": 1, "screenshot": "a.png", "note": "looked"},
        {"note": "done"},
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    film = film_of(FolderFiles(tmp_path))
    assert film is not None
    assert (film.goal, [frame.note for frame in film.frames]) == ("the goal", ["looked", "done"])
    (tmp_path / "events.jsonl").write_text('{"note": "only words"}\n')
    assert film_of(FolderFiles(tmp_path)) is None
    assert film_of(FolderFiles(tmp_path / "nowhere")) is None


def test_pictures_are_pictures_and_lie_inside(tmp_path: Path):
    inside, outside = tmp_path / "artifacts", tmp_path / "other"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret.png").write_bytes(png(1))
    (inside / "good.png").write_bytes(png(2))
    (inside / "same.png").write_bytes(png(2))
    (inside / "text.png").write_text("<svg onload=alert(1)>")
    (inside / "link.png").symlink_to(outside / "secret.png")
    (inside / "folder").symlink_to(outside)
    os.mkfifo(inside / "pipe.png")
    album = Album(10_000)
    names = [
        "text.png",
        "link.png",
        "folder/secret.png",
        "../other/secret.png",
        str(outside / "secret.png"),
        "pipe.png",
    ]
    assert [album.add(FolderFiles(tmp_path), name) for name in [*names, "none.png", "", "a\0b", "x" * 5000, "."]] == [
        None
    ] * 11
    assert album.add(FolderFiles(tmp_path), "good.png") == album.add(FolderFiles(tmp_path), "same.png") == 0
    assert album.data[0].startswith("data:image/png;base64,iVBOR")
    assert len(album.data) == 1


@pytest.fixture
def films(home: Path):
    builder = RunBuilder(home, ["good_1", "bad_1", "wrong_1"], name="films").begin()
    builder.attempt("good_1", 1.0)
    builder.attempt("bad_1", kind=Kind.TASK_ERROR, then=TaskState.FAILED)
    builder.attempt("wrong_1", 0.0)
    for key, shades in {"good_1": [1, 2, 3], "bad_1": [4, 5], "wrong_1": [6, 7]}.items():
        leave(builder, key, shades, size=1000)
    yield builder
    builder.close()


def test_the_page_has_the_steps_and_the_pictures(films: RunBuilder, tmp_path: Path):
    text = page(films.store, films.run, films.home, beside=tmp_path)
    held = data_of(text, "films")
    places = {task[0]: task[-1][0][-1] for task in data_of(text, "data")["tasks"]}
    goal, cut, link, rows = held["films"][places["good_1"]]
    assert (goal, cut) == ("Click it.", 0)
    assert link.startswith(f"home/runs/{films.run.id}/good_1-")
    assert rows[0] == [1, 1.0, "click at 3, 4", "why", "", 0.0, rows[0][6], None, [[3.0, 4.0]]]
    assert rows[-1][2:5] == ["", "end: score 0.5 (max_steps)", ""]
    assert len(held["pictures"]) == 8, "seven steps, and an end that looks the same everywhere"
    assert "not in this page" not in text.partition("<script")[0]
    assert "Open a task to see what its attempts did" in text


def test_pictures_of_failures_go_first_and_the_rest_is_told(films: RunBuilder, tmp_path: Path):
    room = 5 * 1500
    text = page(films.store, films.run, films.home, beside=tmp_path, most=room)
    held = data_of(text, "films")
    places = {task[0]: task[-1][0][-1] for task in data_of(text, "data")["tasks"]}
    shown = {key: [row[6] is not None for row in held["films"][film][3]] for key, film in places.items()}
    assert shown == {"bad_1": [True] * 3, "wrong_1": [True] * 3, "good_1": [False, False, False, True]}
    assert held["films"][places["good_1"]][3][1][7] == "step_2.png", "the name of what is not there, for its link"
    assert sum(map(len, held["pictures"])) <= room
    assert "3 screenshots are not in this page, which holds 0.0075 MB of them, those of failures first" in text
    none = page(films.store, films.run, films.home, most=0)
    assert data_of(none, "films")["pictures"] == []
    assert data_of(none, "films")["films"][0][2] is None, "no link where nobody knows where the page will lie"


def test_hostile_films_stay_text(films: RunBuilder, tmp_path: Path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b"
    folder = Home(films.home).attempt(films.run.id, "good_1", 1) / "artifacts"
    line = {"step": 1, "note": evil, "action": evil, "screenshot": evil, "tokens": {evil: 3}, "goal": evil}
    (folder / "trajectory.jsonl").write_text(json.dumps({"goal": evil}) + "\n" + json.dumps(line))
    text = page(films.store, films.run, films.home, beside=tmp_path)
    assert text.count("<script") == 3, "two kinds of data, and the page's own"
    assert "onerror=alert(2)>" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
