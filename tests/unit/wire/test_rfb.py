"""A viewer who may only look says nothing else to a desktop, however its bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.wire.rfb import Foreign, ViewOnly

HELLO = b"RFB 003.008\n" + b"\x01" + b"\x00"
PASSED_HELLO = b"RFB 003.008\n" + b"\x01" + b"\x01"
PIXELS = bytes([0]) + b"\0" * 19
ENCODINGS = bytes([2, 0, 0, 2]) + b"\0" * 8
UPDATE = bytes([3, 1]) + b"\0" * 8
KEY = bytes([4, 1, 0, 0, 0, 0, 0, 0x61])
POINTER = bytes([5, 1, 0, 9, 0, 9])
CUT = bytes([6, 0, 0, 0, 0, 0, 0, 3]) + b"\x04\x05\x03"
EXTENDED_CUT = bytes([6, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFC]) + b"\x04\x04\x04\x04"
CONTINUOUS = bytes([150, 1]) + b"\0" * 8
FENCE = bytes([248, 0, 0, 0, 0, 0, 0, 0, 2]) + b"ab"
POWER = bytes([250, 0, 1, 2])
RESIZE = bytes([251, 0, 0, 1, 0, 1, 1, 0]) + b"\x04" * 16
QEMU_KEY = bytes([255, 0]) + b"\x04" * 10

GOOD = [PIXELS, ENCODINGS, UPDATE, CONTINUOUS, FENCE]
BAD = [KEY, POINTER, CUT, EXTENDED_CUT, POWER, RESIZE, QEMU_KEY]


@given(st.lists(st.sampled_from(GOOD + BAD), max_size=20), st.lists(st.integers(1, 7), max_size=300))
def test_only_questions_for_pictures_pass(messages: list[bytes], cuts: list[int]):
    said = HELLO + b"".join(messages)
    view, heard = ViewOnly(), b""
    for cut in cuts:
        heard += view.feed(said[:cut])
        said = said[cut:]
    heard += view.feed(said)
    assert heard == PASSED_HELLO + b"".join(message for message in messages if message in GOOD)


@pytest.mark.parametrize(
    "said",
    [
        b"RFB 003.003\n",
        b"GET / HTTP/1",
        b"RFB 003.008\n\x13",  # a security type of its own
        HELLO + b"\x07",
        HELLO + b"\xfc",
        HELLO + bytes([6, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF]),  # two gigabytes of clipboard
    ],
)
def test_what_is_not_known_ends_the_conversation(said: bytes):
    with pytest.raises(Foreign):
        ViewOnly().feed(said)


def test_a_password_goes_through():
    assert ViewOnly().feed(b"RFB 003.008\n\x02" + b"p" * 16 + b"\0") == b"RFB 003.008\n\x02" + b"p" * 16 + b"\x01"
