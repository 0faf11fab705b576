"""Pictures as PNG, without a library: a screen's pixels are packed fast rather than small."""

from __future__ import annotations

import struct
import zlib

from evalfleet.environments.base import Size

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEVEL = 1


def png(pixels: bytes, size: Size) -> bytes:
    """Return pixels of 4 bytes each (blue, green, red, nothing), line by line, as a PNG.

    Raises:
        ValueError: there are not as many pixels as the size says.
    """
    if len(pixels) != 4 * size.width * size.height:
        raise ValueError(f"{len(pixels)} bytes are not {size.width} x {size.height} pixels")
    colours = bytearray(3 * size.width * size.height)
    for place, offset in enumerate((2, 1, 0)):
        colours[place::3] = pixels[offset::4]
    width = 3 * size.width
    lines = b"\0".join([b"", *(colours[at : at + width] for at in range(0, len(colours), width))])
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 15, 9, zlib.Z_DEFAULT_STRATEGY)
    data = packer.compress(lines) + packer.flush()
    head = struct.pack(">IIBBBBB", size.width, size.height, 8, 2, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
