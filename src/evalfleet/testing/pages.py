"""Pages for an agent to look at, without any browser."""

from __future__ import annotations

import struct
import zlib

from evalfleet.agents.base import Box, Element, Observation, Point

_WIDTH, _HEIGHT = 160, 120


def picture(width: int = _WIDTH, height: int = _HEIGHT) -> bytes:
    """Return a white PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def looking(goal: str, *texts: str, step: int = 1) -> Observation:
    """Return what an agent sees of a page with a button for each text, one below the other."""
    buttons = [
        Element(
            index=number,
            parent=None,
            tag="button",
            text=text,
            value=None,
            checked=None,
            focused=False,
            box=Box(x=10, y=10 + 30 * number, width=60, height=20),
            point=Point(x=40, y=20 + 30 * number),
        )
        for number, text in enumerate(texts)
    ]
    return Observation(
        step=step, goal=goal, screenshot=picture(), width=_WIDTH, height=_HEIGHT, elements=tuple(buttons)
    )
