"""The viewer's half of a WebSocket, against bytes as RFC 6455 has them, and cut anywhere."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.wire.websocket import Broken, Frames, frame, is_accepted, request

# The example of RFC 6455, section 1.3.
NONCE = base64.b64decode("dGhlIHNhbXBsZSBub25jZQ==")
ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nsec-websocket-accept:s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)


def served(payload: bytes, kind: int = 2, *, last: bool = True) -> bytes:
    """A frame as a server sends it."""
    size = len(payload)
    short = b"\x7e" + size.to_bytes(2, "big") if size < 1 << 16 else b"\x7f" + size.to_bytes(8, "big")
    length = bytes([size]) if size < 126 else short
    return bytes([(0x80 if last else 0) | kind]) + length + payload


def unmasked(data: bytes) -> bytes:
    """What a server reads of one frame of ours."""
    assert data[1] & 0x80
    size, begin = data[1] & 0x7F, 2
    if size >= 126:
        begin = 4 if size == 126 else 10
        size = int.from_bytes(data[2:begin], "big")
    mask, body = data[begin : begin + 4], data[begin + 4 :]
    assert len(body) == size
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(body))


def test_the_handshake_of_the_standard():
    asked = request("/websockify", "localhost:8006", NONCE)
    assert b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" in asked
    assert asked.startswith(b"GET /websockify HTTP/1.1\r\nHost: localhost:8006\r\n")
    assert is_accepted(ACCEPTED, NONCE)
    assert not is_accepted(ACCEPTED, b"x" * 16), "an answer to somebody else"
    assert not is_accepted(ACCEPTED.replace(b"101", b"200"), NONCE)
    assert not is_accepted(b"", NONCE)


SIZES = st.sampled_from([0, 1, 125, 126, 300, 65_535, 65_536])


@given(st.lists(SIZES, max_size=4), st.data())
def test_what_comes_is_told_however_it_is_cut(sizes: list[int], data: st.DataObject):
    messages = [bytes([65 + place]) * size for place, size in enumerate(sizes)]
    stream = b"".join(served(one) for one in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    frames = Frames()
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert b"".join(frames.feed(piece) for piece in pieces) == b"".join(messages)


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 65_535, 65_536])
def test_what_goes_is_masked(size: int):
    payload = bytes(range(256)) * (size // 256 + 1)
    assert unmasked(frame(payload[:size], b"\x00\xff\x10\x07")) == payload[:size]


def test_pings_are_answered_and_a_close_ends_it():
    frames = Frames()
    told = frames.feed(served(b"ab", last=False) + served(b"here?", 9) + served(b"cd", 0) + served(b"", 10))
    assert told == b"abcd"
    assert unmasked(frames.pongs(b"\1\2\3\4")) == b"here?"
    assert frames.pongs(b"\1\2\3\4") == b""
    assert frames.feed(served(b"\x03\xe8", 8) + served(b"late")) == b""
    assert frames.closed


@pytest.mark.parametrize("strange", [b"\xc2\x00", b"\x82\x80", served(b"", 3), b"\x82\x7f" + b"\xff" * 8])
def test_what_is_not_the_protocol_is_refused(strange: bytes):
    with pytest.raises(Broken):
        Frames().feed(strange)
