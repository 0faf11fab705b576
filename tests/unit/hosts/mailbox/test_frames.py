"""What arrives is what was sent, whatever happens to the frames on their way."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.pilot.frames import ACK_AFTER_S, ACK_EVERY, RESEND_S, WINDOW, BadFrame, Frame, Receiver, Sender
from evalfleet.pilot.keys import SessionKeys


def ends(secret: bytes = b"shared") -> tuple[Sender, Receiver]:
    keys = SessionKeys(secret, b"transcript")
    return Sender(keys.to_pilot, keys.to_pilot_acks), Receiver(keys.to_pilot, keys.to_pilot_acks)


class Line:
    """A carrier of one direction, in memory, that may do anything but invent sealed frames."""

    def __init__(self, rng: Random, payloads: list[bytes]) -> None:
        self.sender, self.receiver = ends()
        self._foreign, _ = ends(b"another session")
        self._rng = rng
        self._waiting = list(payloads)
        self._box: dict[int, bytes] = {}
        self._seen: list[tuple[int, bytes]] = []  # everything that was ever put
        self._acks: list[bytes] = []
        self._now = 0.0
        self.arrived: list[bytes] = []

    @property
    def is_done(self) -> bool:
        return not self._waiting and not self.sender.waiting

    def step(self, share: float) -> None:
        """One thing happens; with that chance a bad one."""
        self._now += self._rng.choice([0.0, 1.0, RESEND_S])
        act = self._rng.choice([self._send, self._receive, self._acknowledge, self._resend])
        bad = self._rng.choice([self._replay, self._damage, self._forge])
        (bad if self._rng.random() < share else act)(share)
        assert self.sender.waiting <= WINDOW

    def _put(self, number: int, data: bytes, share: float) -> None:
        self._seen.append((number, data))
        if self._rng.random() >= share:
            self._box[number] = data

    def _send(self, share: float) -> None:
        if self._waiting and self.sender.has_room:
            self._put(*self.sender.seal(Frame(self._waiting.pop(0)), self._now), share)

    def _receive(self, share: float) -> None:
        data = self._box.get(self.receiver.next)
        if data is None:
            return
        number = self.receiver.next
        try:
            self.arrived.append(self.receiver.take(data, self._now).payload)
        except BadFrame:
            return
        if self._rng.random() >= share:
            self._box.pop(number)

    def _acknowledge(self, share: float) -> None:
        told = self.receiver.ack(self._now)
        if told is not None and self._rng.random() >= share:
            self._acks.append(told)
            self.receiver.acked(self._now)

    def _resend(self, share: float) -> None:
        if self.sender.asks(self._now):
            self.sender.acknowledge(self._acks[-1] if self._acks else None)
            for number, data in self.sender.overdue(self._now):
                self._put(number, data, share)

    def _replay(self, _share: float) -> None:
        if self._seen:
            number, data = self._rng.choice(self._seen)
            self._box[self._rng.choice([number, self.receiver.next])] = data
        if self._acks:
            self._acks.append(self._rng.choice(self._acks))

    def _damage(self, _share: float) -> None:
        if self._box:
            number = self._rng.choice(sorted(self._box))
            data = bytearray(self._box[number])
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
            self._box[number] = bytes(data)

    def _forge(self, _share: float) -> None:
        _, data = self._foreign.seal(Frame(b"forged"), self._now)
        self._foreign.acknowledge(None)
        self._box[self.receiver.next] = data
        self._acks.append(self._rng.randbytes(40))


@settings(max_examples=50)
@given(st.integers(0, 1 << 32), st.integers(0, 2 * WINDOW))
def test_everything_arrives_once_and_in_order(seed: int, count: int):
    rng = Random(seed)
    payloads = [rng.randbytes(rng.randrange(9)) for _ in range(count)]
    line = Line(rng, payloads)
    for _ in range(300):
        line.step(0.3)
        assert line.arrived == payloads[: len(line.arrived)]
    for _ in range(60 * (len(payloads) + 10)):
        if line.is_done:
            break
        line.step(0.0)
    assert line.is_done
    assert line.arrived == payloads


def test_frames_of_another_session_direction_or_number_do_not_open():
    keys, others = SessionKeys(b"one", b"t"), SessionKeys(b"one", b"other transcript")
    data = Sender(keys.to_pilot, keys.to_pilot_acks).seal(Frame(b"order"), 0.0)[1]
    for key in (keys.from_pilot, others.to_pilot):
        with pytest.raises(BadFrame):
            Receiver(key, b"").take(data, 0.0)
    receiver = Receiver(keys.to_pilot, keys.to_pilot_acks)
    assert receiver.take(data, 0.0).payload == b"order"
    with pytest.raises(BadFrame):
        receiver.take(data, 0.0)  # the same once more, in the place of the next


def test_a_frame_tells_its_flags_and_counts():
    sender, receiver = ends()
    frame = Frame(b"", closes=True, busy=True, reads=7, writes=1 << 40)
    found = receiver.take(sender.seal(frame, 0.0)[1], 0.0)
    assert (found.closes, found.busy, found.reads, found.writes) == (True, True, 7, 0xFFFFFFFF)


def test_acknowledgements_are_few_and_soon():
    sender, receiver = ends()
    for number in range(1, ACK_EVERY + 1):
        assert receiver.ack(0.0) is None, number
        receiver.take(sender.seal(Frame(b"x"), 0.0)[1], 0.0)
    assert sender.acknowledge(receiver.ack(0.0))
    assert sender.waiting == 0
    receiver.acked(0.0)
    receiver.take(sender.seal(Frame(b"x"), 1.0)[1], 1.0)
    assert receiver.ack(2.0) is None
    assert sender.acknowledge(receiver.ack(1.0 + ACK_AFTER_S))


def test_an_acknowledgement_is_repeated_ever_more_rarely():
    sender, receiver = ends()
    receiver.take(sender.seal(Frame(b"x"), 0.0)[1], 0.0)
    written = 0
    for second in range(3600):
        if receiver.ack(second) is not None:
            receiver.acked(second)
            written += 1
    assert 10 < written < 20
