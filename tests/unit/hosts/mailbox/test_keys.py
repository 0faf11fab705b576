"""Signatures, handshakes and sealed files: what is forged, replayed or meant for another is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.hosts.mailbox.home_key import home_identity
from evalfleet.layout import Home
from evalfleet.pilot.keys import (
    BadSignature,
    Identity,
    Offer,
    PublicIdentity,
    accept,
    introduction,
    read_introduction,
    read_signed,
    signed,
)
from evalfleet.pilot.sealed import PIECE, SealedReader, SealedWriter

CONTROLLER, PILOT, THIEF = (Identity(bytes([number]) * 32) for number in (1, 2, 3))


def test_a_home_keeps_its_identity(tmp_path: Path):
    home = Home(tmp_path / "home")
    first = home_identity(home)
    assert home_identity(home).public.text == first.public.text
    assert home.mailbox_key.stat().st_mode & 0o777 == 0o600
    home.mailbox_key.write_bytes(b"short")
    with pytest.raises(OSError, match="damaged"):
        home_identity(home)


def test_tokens_differ_by_home_host_and_generation():
    tokens = {
        CONTROLLER.token("w1", 1),
        CONTROLLER.token("w1", 2),
        CONTROLLER.token("w2", 1),
        CONTROLLER.token("w", 11),
        THIEF.token("w1", 1),
    }
    assert len(tokens) == 5
    assert CONTROLLER.token("w1", 1) in tokens


@pytest.mark.parametrize("text", ["", "AAAA", "not base64!", PILOT.public.text + "AA"])
def test_a_public_identity_has_64_bytes(text: str):
    with pytest.raises(ValueError, match=r"identity|ase64|ncorrect"):
        PublicIdentity(text)


def test_a_document_is_of_one_kind_and_one_signer():
    data = signed(PILOT, "beat", {"number": 1})
    assert read_signed(PILOT.public, "beat", data) == {"number": 1}
    for signer, kind, changed in (
        (THIEF.public, "beat", data),
        (PILOT.public, "bye", data),
        (PILOT.public, "beat", data.replace(b"1", b"2", 1)),
        (PILOT.public, "beat", b"{}"),
        (PILOT.public, "beat", b"\xff"),
    ):
        with pytest.raises(BadSignature):
            read_signed(signer, kind, changed)


def test_only_the_token_introduces_a_pilot():
    token = CONTROLLER.token("w1", 1)
    data = introduction(PILOT, token, {"generation": 1})
    assert read_introduction(token, data) == {"generation": 1, "identity": PILOT.public.text}
    for stolen, changed in (
        (CONTROLLER.token("w2", 1), data),
        (token, data.replace(PILOT.public.text.encode(), THIEF.public.text.encode())),
    ):
        with pytest.raises(BadSignature):
            read_introduction(stolen, changed)


def test_both_sides_get_the_same_keys_and_no_other_session_does():
    offer = Offer(CONTROLLER, PILOT.public, 1, "runner")
    document = offer.document(5)
    purpose, reply, theirs = accept(PILOT, CONTROLLER.public, 1, 5, document)
    ours = offer.keys(5, reply)
    assert purpose == "runner"
    assert vars(ours) == vars(theirs)
    assert len(set(vars(ours).values())) == 4
    _, second, again = accept(PILOT, CONTROLLER.public, 1, 5, document)
    assert vars(again) != vars(theirs), "a replayed offer gets keys of its own, which the replayer cannot know"
    with pytest.raises(BadSignature, match="another session"):
        Offer(CONTROLLER, PILOT.public, 1, "runner").keys(5, second)


@pytest.mark.parametrize(
    ("pilot", "controller", "generation", "session"),
    [
        (THIEF, CONTROLLER.public, 1, 5),  # opened for another pilot
        (PILOT, THIEF.public, 1, 5),  # by another controller
        (PILOT, CONTROLLER.public, 2, 5),  # for an older generation
        (PILOT, CONTROLLER.public, 1, 6),  # replayed under another number
    ],
)
def test_a_session_is_for_one_pilot_generation_and_number(
    pilot: Identity, controller: PublicIdentity, generation: int, session: int
):
    document = Offer(CONTROLLER, PILOT.public, 1, "runner").document(5)
    with pytest.raises(BadSignature):
        accept(pilot, controller, generation, session, document)


def test_a_reply_is_the_pinned_pilots():
    offer = Offer(CONTROLLER, PILOT.public, 1, "runner")
    forged = signed(THIEF, "reply", {"session": 1, "offer": "", "key": ""})
    with pytest.raises(BadSignature):
        offer.keys(1, forged)


def sealed(data: bytes, reader: PublicIdentity = CONTROLLER.public) -> bytes:
    out: list[bytes] = []
    writer = SealedWriter(reader, out.append)
    writer.write(data)
    writer.finish()
    return b"".join(out)


@given(st.sampled_from([0, 1, 100, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 7]), st.integers(1, 1 << 20))
def test_a_sealed_file_opens_in_any_pieces(size: int, piece: int):
    data = bytes(range(256)) * (size // 256 + 1)
    text = sealed(data[:size])
    reader = SealedReader(CONTROLLER)
    step = max(piece, len(text) // 50 + 1)
    plain = b"".join(reader.feed(text[at : at + step]) for at in range(0, len(text), step))
    reader.finish()
    assert plain == data[:size]


def test_a_sealed_file_is_the_readers_and_whole():
    text = sealed(b"x" * (PIECE + 5))
    with pytest.raises(BadSignature):
        SealedReader(THIEF).feed(text)
    with pytest.raises(BadSignature):
        SealedReader(CONTROLLER).feed(text[:-1] + bytes([text[-1] ^ 1]))
    short = SealedReader(CONTROLLER)
    short.feed(text[: PIECE + 32 + 4 + 16])  # exactly its first piece
    with pytest.raises(BadSignature, match="cut short"):
        short.finish()
    longer = SealedReader(CONTROLLER)
    with pytest.raises(BadSignature):
        longer.feed(text + text[32:])
