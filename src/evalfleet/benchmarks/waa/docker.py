"""Access to containers through Docker's command line. Only this module knows its syntax."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from evalfleet.errors import EnvironmentFailed

QUICK_S = 20.0
MARK = "EVALFLEET_CONTAINER"
LABEL = "evalfleet=waa"  # of the containers that we make
_INSIDE = Path(__file__).with_name("in_container.py")
_ASK = Path(__file__).with_name("golden") / "ask_guest.py"


class DockerError(EnvironmentFailed):
    """A Docker command failed."""


class Docker:
    """Docker as one program. Every call has a deadline; what fails raises DockerError with Docker's own words."""

    def __init__(self, program: str) -> None:
        self.program = program

    def version(self) -> str:
        return self.call("version", "--format", "{{.Server.Version}}")

    def has_image(self, image: str) -> bool:
        return self._known("image", "inspect", "--format", "{{.Id}}", image) is not None

    def is_running(self, container: str) -> bool | None:
        """Whether it runs; None if there is no such container."""
        said = self._known("container", "inspect", "--format", "{{.State.Running}}", container)
        return None if said is None else said == "true"

    def state(self, container: str) -> str | None:
        """Docker's word for how it is: created, running, paused, restarting, exited or dead; None if there is none."""
        return self._known("container", "inspect", "--format", "{{.State.Status}}", container)

    def is_ours(self, container: str) -> bool:
        """Whether evalfleet made it, and so may make it anew."""
        said = self._known("container", "inspect", "--format", '{{index .Config.Labels "evalfleet"}}', container)
        return said == "waa"

    def start(self, container: str, timeout_s: float = 60.0) -> None:
        self.call("start", container, timeout_s=timeout_s)

    def restart(self, container: str) -> None:
        """At once: Windows must be off, or not matter. Its first process does not hear of a stop, so a wait would be in vain."""
        self.call("restart", "-t", "1", container, timeout_s=120.0)

    def environment(self, container: str) -> list[str]:
        """The variables that it was made with, as NAME=value."""
        return self.call("container", "inspect", "--format", '{{join .Config.Env "\\n"}}', container).splitlines()

    def run(self, arguments: Sequence[str], timeout_s: float = 120.0) -> None:
        """`docker run --detach` with these arguments."""
        self.call("run", "--detach", *arguments, timeout_s=timeout_s)

    def remove(self, container: str) -> None:
        self.call("rm", "--force", container, timeout_s=60.0)

    def last_words(self, container: str) -> str:
        """The last line of its log."""
        return _last_line(self.call("logs", "--tail", "5", container))

    def data_folder(self) -> str:
        """Where it keeps images."""
        return self.call("info", "--format", "{{.DockerRootDir}}")

    def sweep(self, image: str) -> None:
        """Remove what we left behind: our containers that have ended, and older images of the same repository."""
        self.call("container", "prune", "--force", "--filter", f"label={LABEL}", timeout_s=120.0)
        repository = image.partition("@")[0]
        head, _, tail = repository.rpartition("/")
        repository = f"{head}/{tail.partition(':')[0]}" if head else tail.partition(":")[0]
        filters = ("--filter", "dangling=true", "--filter", f"reference={repository}")
        old = self.call("image", "ls", "--quiet", *filters, timeout_s=60.0).split()
        if old:
            self.call("image", "rm", *dict.fromkeys(old), timeout_s=300.0)

    def read(self, container: str, path: str) -> str:
        """The text of a file in the container."""
        return self.call("exec", container, "cat", path)

    def do(self, container: str, python: str, plan: Mapping[str, Any], timeout_s: float) -> list[dict[str, Any]]:
        """Let the program inside carry out a plan to its end; returns what it told."""
        said = self.call(
            "exec", container, python, "-c", _INSIDE.read_text("utf-8"), json.dumps(plan), timeout_s=timeout_s
        )
        return [json.loads(line) for line in said.splitlines()]

    def ask(self, container: str, python: str, plan: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask Windows or its QEMU one thing from inside the container; see `golden/ask_guest.py`."""
        words = ("exec", container, python, "-c", _ASK.read_text("utf-8"), json.dumps(plan))
        return json.loads(self.call(*words, timeout_s=timeout_s))

    def follow(
        self,
        container: str,
        python: str,
        plan: Mapping[str, Any],
        secrets: Sequence[str],
        folder: str,
        environ: Mapping[str, str],
    ) -> Inside:
        """Start a plan inside, in that folder. Secrets are named only: Docker takes their values from `environ`."""
        named = [word for name in secrets for word in ("--env", name)]
        command = ["exec", "--interactive", "--workdir", folder, "--env", f"{MARK}={plan['mark']}", *named]
        program = [python, "-c", _INSIDE.read_text("utf-8"), json.dumps(plan)]
        return Inside([self.program, *command, container, *program], environ)

    def call(self, *arguments: str, timeout_s: float = QUICK_S, stdin: str | None = None) -> str:
        """Run to its end, and return what it printed. What it is told on standard input shows in no command line."""
        words = f"docker {next(word for word in arguments if not word.startswith(('-', '/')))}"
        try:
            done = subprocess.run(
                [self.program, *arguments],
                input=stdin or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DockerError(f"{words} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise DockerError(f"{self.program} cannot be started: {error.strerror}") from None
        if done.returncode:
            raise DockerError(f"{words} failed: {_last_line(done.stderr) or f'exit status {done.returncode}'}")
        return done.stdout.strip()

    def _known(self, *arguments: str) -> str | None:
        try:
            return self.call(*arguments)
        except DockerError as error:
            if "no such" in str(error).lower():
                return None
            raise


class Inside:
    """A plan under way inside a container: its news, as lines come. Closing it ends what runs there."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._sending = threading.Lock()
        self._errors = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - `close` closes it
        try:
            # Its standard input stays open while we live: its end is how the other side learns that we are gone.
            self._client = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                errors="replace",
                env=dict(environ),
            )
        except OSError as error:
            raise DockerError(f"{command[0]} cannot be started: {error.strerror}") from None

    def __iter__(self) -> Inside:
        return self

    def __next__(self) -> dict[str, Any]:
        """The next news. Raises DockerError where the other side speaks otherwise, or is gone without a word."""
        assert self._client.stdout is not None
        line = self._client.stdout.readline()
        if not line:
            raise StopIteration
        try:
            return json.loads(line)
        except ValueError:
            raise DockerError(f"docker exec said {line[:200]!r}") from None

    def send(self, line: Mapping[str, Any]) -> None:
        """Give the program inside a line. May be called by any thread; one that is gone does not need it."""
        with self._sending, suppress(OSError, ValueError):
            assert self._client.stdin is not None
            self._client.stdin.write(json.dumps(line) + "\n")
            self._client.stdin.flush()

    def stop(self) -> None:
        """End it, from any thread; the reader then finds the end of its news."""
        self._client.terminate()

    def error(self) -> str:
        """What the client said when it ended without a last word."""
        status = self._client.wait()
        self._errors.seek(0)
        said = _last_line(self._errors.read().decode(errors="replace"))
        return f"docker exec ended with status {status}" + (f": {said}" if said else "")

    def close(self) -> None:
        for pipe in (self._client.stdin, self._client.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._client.terminate()
        self._client.wait()
        self._errors.close()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
