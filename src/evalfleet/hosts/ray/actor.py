"""The actor that holds a runner on a node of a Ray cluster: it starts the runner and carries bytes to its socket.

Runs on nodes that do not have evalfleet: Ray gets this file by value. Standard library and Ray only. A controller of another
version may talk to it, so methods are only added.
"""

from __future__ import annotations

import asyncio
import fcntl
import glob
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from importlib import metadata
from typing import Any

PIECE = 96 << 10  # Ray passes values up to 100 KB with the call itself
LOOK_S = 1.0
WAIT_S = 10.0  # a call for bytes returns after this time at the latest
SILENT_S = 60.0  # a connection without such calls belongs to a controller that died
START_S = 120.0  # a new runner first ends what a dead one left
LAUNCH = "import os, sys; os.fork() and os._exit(0); os.setsid(); exec(sys.argv[1])"


def clean(folder: str) -> None:
    """Remove what dead actors left on this node. `folder` is a pattern; a folder that a runner has stays."""
    for found in glob.glob(_there(folder)):
        if not _is_held(found):
            shutil.rmtree(found, ignore_errors=True)


def _there(folder: str) -> str:
    return os.path.expanduser(folder.replace("{hostname}", socket.gethostname()))


def _is_held(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "runner.lock"), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False


class Session:
    """One connection to the runner."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.asked_at = time.monotonic()


class RunnerActor:
    """One worker of a pool. It ends without a controller: `idle_s` after the last work and connection, and in any case `limit_s` after
    the last connection. Its death, however it comes, ends the runner and its tasks (see `pilot/runner_guard.py`)."""

    def __init__(self, folder: str, homes: list[str], idle_s: float, limit_s: float, watch: str) -> None:
        self._folder = _there(folder)
        self._slots = self._folder + "-slots"
        self._homes = homes
        self._idle_s = idle_s
        self._limit_s = limit_s
        self._sessions: dict[int, Session] = {}
        self._next = 1
        self._seen_at = time.monotonic()
        self._program: str | None = None
        self._life: asyncio.Task[None] | None = None
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        reader, self._alive = os.pipe()  # nothing is ever written: its end is the end of this process
        # The watch is a child of init, in a session of its own, because Ray ends the children of an actor.
        words = [sys.executable, "-I", "-S", "-c", LAUNCH, watch, self._folder, self._folder, ""]
        subprocess.run(words, stdin=reader, env=self._environment(), check=True, start_new_session=True)
        os.close(reader)

    async def facts(self) -> dict[str, Any]:
        """Where it is. Answers as soon as the actor has started."""
        if self._life is None:
            self._life = asyncio.ensure_future(self._end_when_idle())
        import ray

        return {
            "node": ray.get_runtime_context().get_node_id(),
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "folder": self._folder,
        }

    async def python(self, packages: list[str]) -> dict[str, Any]:
        """The Python of this node, and which versions of these packages it has."""
        versions: dict[str, str | None] = {}
        for name in packages:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = None
        return {"python": sys.executable, "versions": versions}

    async def forever(self) -> None:
        """Never returns. The call fails when the actor dies, and its error says why."""
        await asyncio.Event().wait()

    async def has(self, digest: str) -> bool:
        """Whether it has this version of the runner."""
        found = self._path(digest)
        self._program = found if found in self._programs() else self._program
        return self._program == found

    async def store(self, digest: str, data: bytes) -> None:
        """Keep a version of the runner."""
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("the runner arrived damaged")
        self._program = self._keep(self._path(digest), data)

    async def command(self, word: str, more: list[str]) -> dict[str, Any]:
        """One command of the runner's program: its answer, or `error` and `message`."""
        self._seen_at = time.monotonic()
        return await self._run(word, more)

    async def open(self) -> dict[str, Any]:
        """Connect to the runner, which is started if it does not run. Returns the number of the `session`."""
        line = await self.command("serve", ["--idle", f"{self._idle_s:g}"])
        if "error" in line:
            return line
        self._sessions[self._next] = Session(*await asyncio.open_unix_connection(line["socket"]))
        self._next += 1
        return {"session": self._next - 1}

    async def send(self, session: int, data: bytes) -> None:
        writer = self._sessions[session].writer
        writer.write(data)
        await writer.drain()

    async def receive(self, session: int) -> bytes | None:
        """Wait for bytes of the runner; empty at their end, None where there are none yet."""
        found = self._sessions[session]
        found.asked_at = time.monotonic()
        try:
            return await asyncio.wait_for(found.reader.read(PIECE), WAIT_S)
        except TimeoutError:
            return None

    async def close(self, session: int) -> None:
        found = self._sessions.pop(session, None)
        self._seen_at = time.monotonic()
        if found is not None:
            found.writer.close()

    async def retire(self) -> dict[str, Any]:
        """End the runner and remove its folder, if it has neither work nor another connection: `removed`, else `why` not."""
        # A controller that lives asks again at once: one that was killed does not keep the actor.
        if any(time.monotonic() - one.asked_at < 2 * WAIT_S for one in self._sessions.values()):
            return {"removed": False, "why": "a controller is connected"}
        return await self._remove()

    async def _remove(self) -> dict[str, Any]:
        said = await self._run("remove", ["--homes", ",".join(self._homes)])
        if said.get("removed"):
            shutil.rmtree(self._slots, ignore_errors=True)
        return said

    async def _run(self, word: str, more: list[str]) -> dict[str, Any]:
        if self._program is None:
            return {"error": "no_program", "message": "the actor has no runner yet"}
        words = [sys.executable, "-I", "-S", self._program, word, "--spool", self._folder, *more]
        process = await asyncio.create_subprocess_exec(
            *words, env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), START_S)
        except TimeoutError:
            process.kill()
            return {"error": "timeout", "message": f"the runner's program did not end within {START_S:g} s"}
        try:
            return dict(json.loads(out))
        except ValueError:
            last = (err.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
            return {"error": "failed", "message": f"exit status {process.returncode}: {last}"}

    async def _end_when_idle(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for number, session in list(self._sessions.items()):
                if time.monotonic() - session.asked_at > SILENT_S:
                    await self.close(number)
            if self._sessions:
                self._seen_at = time.monotonic()
                continue
            alone_s = time.monotonic() - self._seen_at
            busy = _is_held(self._folder) or self._has_attempts()
            if alone_s > self._limit_s or (alone_s > self._idle_s and not busy):
                await self._remove()
                if not self._sessions:
                    os._exit(0)

    def _keep(self, path: str, data: bytes) -> str:
        partial = f"{path}.{os.getpid()}.partial"
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, path)
        return path

    def _programs(self) -> list[str]:
        return [os.path.join(self._folder, name) for name in os.listdir(self._folder)]

    def _has_attempts(self) -> bool:
        try:
            return bool(os.listdir(os.path.join(self._folder, "attempts")))
        except FileNotFoundError:
            return False

    def _path(self, digest: str) -> str:
        return os.path.join(self._folder, f"runner-{digest[:12]}.pyz")

    def _environment(self) -> dict[str, str]:
        """The runner takes what it needs of it. It uses the GPUs that Ray gave the actor, and no others."""
        import ray

        has_gpus = bool(ray.get_runtime_context().get_accelerator_ids().get("GPU"))
        given = os.environ.get("CUDA_VISIBLE_DEVICES", "") if has_gpus else ""
        # Slots are counted for each actor, for several may be on one node.
        return {**os.environ, "EVALFLEET_GPUS_GIVEN": given, "EVALFLEET_SLOT_LOCKS": self._slots}
