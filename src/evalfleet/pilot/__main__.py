"""Command line of the pilot.

    python3 pilot.pyz --controller KEY --generation G --slots N --stops-at UNIX [--box GRANT] [--folder DIR]

The token is in EVALFLEET_PILOT_TOKEN. The grant, which is a secret where it is a signed address, is in EVALFLEET_PILOT_BOX unless
`--box` gives it. Exit status: 0 ended as asked, 2 wrong arguments, 3 refused (box of another pilot, grant refused), 4 no runner.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from .pilot import Pilot

TOKEN = "EVALFLEET_PILOT_TOKEN"
BOX = "EVALFLEET_PILOT_BOX"
OWN_FOLDER = "EVALFLEET_PILOT_OWN_FOLDER"  # on nodes that others use, too: everything in it goes with the pilot
TERM = "EVALFLEET_PILOT_TERM_S"  # after SIGTERM tasks may end in this time; not set: until the node is gone
NEEDED = ("--controller", "--generation", "--slots", "--stops-at")
USAGE = "usage: pilot.pyz %s [--box GRANT] [--folder DIR], with the token in %s" % (
    " VALUE ".join((*NEEDED, "")).strip(),
    TOKEN,
)
RUNNER = "runner.pyz"  # in the archive


def arguments(words: list[str]) -> dict[str, str]:
    """The options by name. Raises ValueError."""
    options = dict(zip(words[::2], words[1::2]))
    if len(words) % 2 or set(options) - {*NEEDED, "--box", "--folder"} or set(NEEDED) - set(options):
        raise ValueError(USAGE)
    options.setdefault("--box", os.environ.pop(BOX, ""))
    options["token"] = os.environ.pop(TOKEN, "")
    if not options["--box"] or not options["token"]:
        raise ValueError("%s\nthe box or the token is missing" % USAGE)
    return options


def state_folder(given: str | None, grant: str) -> str:
    """A private folder for the spool and the key, the same one for each start on this node."""
    digest = hashlib.sha256(grant.partition("?")[0].encode()).hexdigest()[:16]
    folder = given or os.path.join(tempfile.gettempdir(), "evalfleet-pilot-%d" % os.getuid(), digest)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.stat(folder)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise OSError("%s must belong to this user alone" % folder)
    return folder


def identity_secret(folder: str, new_secret: Callable[[], bytes]) -> bytes:
    """The secret of this node's pilot: made once, never shown."""
    path = os.path.join(folder, "identity")
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(new_secret())
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        pass
    with open(path, "rb") as file:
        return file.read()


def last_session(folder: str) -> int:
    try:
        with open(os.path.join(folder, "session.json"), "rb") as file:
            return int(json.load(file))
    except (OSError, ValueError):
        return 0


def note_session(folder: str, number: int) -> None:
    partial = os.path.join(folder, "session.json.partial")
    with open(partial, "w") as file:
        json.dump(number, file)
    os.rename(partial, os.path.join(folder, "session.json"))


def log(line: str) -> None:
    sys.stderr.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), line))
    sys.stderr.flush()


def main(program: str, words: list[str]) -> int:
    try:
        options = arguments(words)
    except ValueError as error:
        sys.stderr.write("%s\n" % error)
        return 2
    from .carrier import BoxClosed, open_carrier
    from .guard import Guarded
    from .keys import Identity, PublicIdentity, new_secret
    from .pilot import Pilot, PilotRefused
    from .runner_process import RunnerProcess, write_program

    guarded = Guarded(os.environ.get(OWN_FOLDER, ""))
    try:
        folder = state_folder(options.get("--folder"), options["--box"])
        guarded.start(os.path.join(folder, "spool"), folder)
        with zipfile.ZipFile(program) as archive:
            data = archive.read(RUNNER)
        version = hashlib.sha256(data).hexdigest()[:12]
        runner = RunnerProcess(write_program(folder, data, version), os.path.join(folder, "spool"))
        pilot = Pilot(
            open_carrier(options["--box"]),
            runner,
            Identity(identity_secret(folder, new_secret)),
            PublicIdentity(options["--controller"]),
            token=options["token"],
            generation=int(options["--generation"]),
            slots=int(options["--slots"]),
            stops_at=float(options["--stops-at"]),
            last_session=last_session(folder),
            note_session=lambda number: note_session(folder, number),
            log=log,
        )
        heed_signals(pilot)
        pilot.run()
    except (PilotRefused, BoxClosed) as error:
        log("refused: %s" % error)
        return 3
    except (OSError, ValueError) as error:
        log("cannot go on: %s" % error)
        return 4
    finally:
        guarded.end()
    return 0


def heed_signals(pilot: Pilot) -> None:
    """SIGUSR1 and the first SIGTERM are notices that the node is taken away; the second SIGTERM ends the pilot at once."""
    heard: list[int] = []
    term_s = os.environ.get(TERM)

    def heed(number: int, _frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            pilot.end("it got signal %d twice" % number)
            return
        pilot.preempt("the node is taken away: the pilot got signal %d" % number)
        if term_s is not None:
            timer = threading.Timer(float(term_s), pilot.end, ["its job was ended: the pilot got signal %d" % number])
            timer.daemon = True
            timer.start()

    signal.signal(signal.SIGUSR1, lambda _number, _frame: pilot.preempt("the time of its job is nearly over"))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, heed)
