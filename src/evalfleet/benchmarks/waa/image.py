"""The pull of WAA's image: with a login if needed, retries, progress reports and a time limit."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from evalfleet.benchmarks.waa.docker import Docker, DockerError
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import Pull, Update

PAUSES_S = (5.0, 20.0)  # before the second and third try
LOGIN_S = 60.0
_TOLD_S = 5.0  # progress is told at most so often,
_STILL_S = 60.0  # and at least so often
_LAYER = re.compile(r"^([0-9a-f]{6,64}): (.+)$")
_MEMORY = "/dev/shm"  # a folder that is no disk


def registry_of(image: str) -> str | None:
    """The registry that an image's name begins with; None: Docker's own."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else None


def pull(
    docker: Docker,
    settings: WaaSettings,
    say: Callable[[Update], None],
    secrets: Mapping[str, str],
    *,
    pauses_s: Sequence[float] = PAUSES_S,
) -> None:
    """Pull the image, in as many tries as there are pauses and one more. What failed pulls leave is removed.

    Raises DockerError with the last try's words.
    """
    _require_password(settings, secrets)
    for number, pause_s in enumerate((*pauses_s, None), 1):
        try:
            with _login(docker, settings, secrets) as options:
                _pull(docker, settings, options, say)
            return
        except DockerError as error:
            with contextlib.suppress(DockerError):
                docker.sweep(settings.image)
            if pause_s is None:
                raise DockerError(f"{error} (tried {number} times)") from None
            say(f"{error}; retrying in {pause_s:g} s")
            time.sleep(pause_s)


def _require_password(settings: WaaSettings, secrets: Mapping[str, str]) -> None:
    if settings.registry_user is not None and not secrets.get(settings.registry_secret):
        raise DockerError(
            f"[waa] registry_user is set, and the variable {settings.registry_secret} with the password is not, where evalfleet "
            "was started; set it there"
        )


@contextmanager
def _login(docker: Docker, settings: WaaSettings, secrets: Mapping[str, str]) -> Generator[list[str]]:
    """Docker's options for the time that we are logged in. Docker keeps the password in a file: in memory, and not for long."""
    if settings.registry_user is None:
        yield []
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.path.isdir(_MEMORY) else None) as folder:
        options = ["--config", folder]
        registry = registry_of(settings.image)
        words = ["login", *([registry] if registry else []), "--username", settings.registry_user, "--password-stdin"]
        docker.call(*options, *words, timeout_s=LOGIN_S, stdin=secrets[settings.registry_secret])
        yield options


def _pull(docker: Docker, settings: WaaSettings, options: Sequence[str], say: Callable[[Update], None]) -> None:
    try:
        process = subprocess.Popen(
            [docker.program, *options, "pull", settings.image],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise DockerError(f"{docker.program} cannot be started: {error.strerror}") from None
    layers = Layers(settings.image, say, time.monotonic())
    try:
        last = _follow(process, layers, time.monotonic() + settings.pull_timeout_s)
    except TimeoutError:
        done = layers.said()
        raise DockerError(f"docker pull did not end within {settings.pull_timeout_s:g} s ({done})") from None
    finally:
        process.kill()  # of one that has ended: nothing. Docker's daemon gives up a pull that nobody waits for
        status = process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if status:
        raise DockerError(f"docker pull failed: {last or f'exit status {status}'}")
    layers.look(time.monotonic(), last=True)


def _follow(process: subprocess.Popen[bytes], layers: Layers, until: float) -> str:
    """Read what it prints until its end; returns the last line. Raises TimeoutError."""
    assert process.stdout is not None
    source, text, last = process.stdout.fileno(), b"", ""
    while True:
        now = time.monotonic()
        if now >= until:
            raise TimeoutError
        if not select.select([source], [], [], min(_TOLD_S, until - now))[0]:
            layers.look(time.monotonic())
            continue
        data = os.read(source, 65536)
        *lines, text = (text + data).split(b"\n")
        for line in (*lines, *([] if data else [text])):
            if line.strip():
                last = line.decode(errors="replace").strip()
                layers.read(last)
        layers.look(time.monotonic())
        if not data:
            process.wait(max(1.0, until - time.monotonic()))
            return last


class Layers:
    """How far a pull is, from what Docker prints without a terminal: a line when something happens to a layer."""

    def __init__(self, image: str, say: Callable[[Update], None], now: float) -> None:
        self._image = image
        self._say = say
        self._begun = now
        self._at: dict[str, str] = {}
        self._told: str = ""
        self._told_at = now

    def read(self, line: str) -> None:
        found = _LAYER.match(line)
        if found:
            self._at[found[1]] = found[2]

    def said(self) -> str:
        done = sum(state in ("Pull complete", "Already exists") for state in self._at.values())
        return f"{done} of {len(self._at)} layers" if self._at else "no layer yet"

    def look(self, now: float, *, last: bool = False) -> None:
        """Tell what is new, or that it still goes on; at the end in any case."""
        said = self.said()
        since = now - self._told_at
        if last or self._told == "" or (said != self._told and since >= _TOLD_S) or since >= _STILL_S:
            self._told, self._told_at = said, now
            self._say(Pull(image=self._image, progress=said, took_s=now - self._begun))
