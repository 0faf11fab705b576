"""The names of the objects in a box."""

from __future__ import annotations

HELLO = "hello"  # the pilot's identity and facts, proved by its token
BEAT = "beat"  # overwritten again and again while the pilot lives
BYE = "bye"  # the pilot's last word: why it ended
OPEN = "open/"
ATTEMPTS = "attempts/"


def opened(session: int) -> str:
    return "%s%08d" % (OPEN, session)


def session_of(name: str) -> int:
    """The number in the name of `opened`; 0 for any other name."""
    digits = name[len(OPEN) :]
    return int(digits) if name.startswith(OPEN) and digits.isdigit() else 0


def to_pilot(session: int) -> str:
    return "to/%08d/" % session


def from_pilot(session: int) -> str:
    return "from/%08d/" % session


def reply(session: int) -> str:
    return from_pilot(session) + "reply"


def frame(folder: str, number: int) -> str:
    return "%s%010d" % (folder, number)


def ack(folder: str) -> str:
    """Where the reader of a folder writes how far it has read."""
    return folder + "ack"


def archive(attempt: str) -> str:
    return "%s%s.tar" % (ATTEMPTS, attempt)


def receipt(attempt: str) -> str:
    """Written after the archive: its size and sum, signed."""
    return "%s%s.json" % (ATTEMPTS, attempt)
