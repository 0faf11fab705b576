"""A controller's way to a Ray cluster: the gateway process, its requests and its streams."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream

from evalfleet.config import environment
from evalfleet.errors import BackendError, ConfigError, HostRefused, HostUnreachable
from evalfleet.model import JsonObject

CONNECT_S = 60.0
REQUEST_S = 150.0
AGAIN_S = 5.0  # after a failure all who ask get the same answer for this long
END_S = 10.0
MAX_LINE = 1 << 20
_ENVIRONMENT = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",  # then the gateway ends, and a new one connects
}
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")


class RayConnection:
    """The gateway is started at the first request, and again after it died. Used in one event loop."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._starting = anyio.Lock()
        self._process: Process | None = None
        self._folder: Path | None = None
        self._failure: tuple[float, BackendError] | None = None
        self._is_closed = False

    async def ask(self, do: str, **fields: Any) -> JsonObject:
        """Send one request. Returns the answer, which has `error` and `message` where the gateway refused.

        Raises:
            HostUnreachable: no cluster answers at the address.
            HostRefused: the cluster runs another Ray or Python.
        """
        async with self._connected() as stream:
            with anyio.fail_after(REQUEST_S):
                return (await _exchange(stream, {"do": do, **fields}))[0]

    @asynccontextmanager
    async def runner(self, name: str) -> AsyncGenerator[ByteStream]:
        """A stream to the runner of an actor, which is started if it does not run. Raises HostUnreachable."""
        async with self._connected() as stream:
            with anyio.fail_after(REQUEST_S):
                answer, rest = await _exchange(stream, {"do": "open", "name": name})
            if "error" in answer:
                raise HostUnreachable(f"its runner cannot be reached: {answer['message']}")
            yield _Begun(stream, rest)

    async def aclose(self) -> None:
        """End the gateway. Actors go on."""
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            await self._end()

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[ByteStream]:
        path = await self._ready()
        try:
            async with await anyio.connect_unix(path) as stream:
                yield stream
        except (
            OSError,
            TimeoutError,
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ) as error:
            raise HostUnreachable(f"the connection to the Ray cluster at {self.address} broke") from error

    async def _ready(self) -> Path:
        async with self._starting:
            if self._process is not None and self._process.returncode is None and self._folder is not None:
                return self._folder / "socket"
            if self._failure is not None and anyio.current_time() < self._failure[0] + AGAIN_S:
                raise self._failure[1]
            if self._is_closed:
                raise HostUnreachable("the connection to the Ray cluster is closed")
            await self._end()
            try:
                return await self._start()
            except BackendError as error:
                self._failure = (anyio.current_time(), error)
                await self._end()
                raise

    async def _start(self) -> Path:
        if find_spec("ray") is None:
            raise ConfigError("pools on Ray need the package ray; run `pip install 'evalfleet[ray]'`")
        self._folder = Path(tempfile.mkdtemp(prefix="evalfleet-ray-"))
        path = self._folder / "socket"
        words = [sys.executable, "-m", "evalfleet.hosts.ray.gateway", self.address, str(path)]
        with (self._folder / "log").open("wb") as log:
            process = await anyio.open_process(
                words, stdin=subprocess.PIPE, stderr=log, start_new_session=True, env={**_ENVIRONMENT, **environment()}
            )
        self._process = process
        assert process.stdout is not None
        line = b""
        with anyio.move_on_after(CONNECT_S), suppress(anyio.IncompleteRead):
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", MAX_LINE)
        if not line:
            raise HostUnreachable(no_cluster(self.address))
        answer = json.loads(line)
        if "error" in answer:
            raise refusal(self.address, answer)
        return path

    async def _end(self) -> None:
        process, folder = self._process, self._folder
        self._process = self._folder = None
        if process is not None:
            if process.stdin is not None:
                with suppress(OSError, anyio.BrokenResourceError):
                    await process.stdin.aclose()  # it ends with its input
            with anyio.move_on_after(END_S):
                await process.wait()
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()
        if folder is not None:
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


class _Begun(ByteStream):
    """A stream of which some bytes were read already."""

    def __init__(self, stream: ByteStream, data: bytes) -> None:
        self._stream = stream
        self._data = data

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._data:
            data, self._data = self._data[:max_bytes], self._data[max_bytes:]
            return data
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _exchange(stream: ByteStream, request: JsonObject) -> tuple[JsonObject, bytes]:
    """The answer to a request, and what came after it."""
    await stream.send(json.dumps(request).encode() + b"\n")
    data = b""
    while b"\n" not in data:
        data += await stream.receive()
    line, _, rest = data.partition(b"\n")
    return json.loads(line), rest


def refusal(address: str, answer: JsonObject) -> BackendError:
    """Why Ray did not connect, and what to do."""
    message = str(answer["message"])
    versions = _VERSIONS.findall(message)
    if "ersion mismatch" in message and len(versions) == 2:
        (their_ray, their_python), (our_ray, our_python) = versions
        return HostRefused(
            f"the Ray cluster at {address} runs Ray {their_ray} with Python {their_python}, and this evalfleet has Ray {our_ray} "
            f"with Python {our_python}; both must be equal (Python up to the minor version): use an environment with Python "
            f"{their_python} and `pip install 'evalfleet[ray]' ray=={their_ray}`"
        )
    if answer["error"] in ("ConnectionError", "RpcError", "TimeoutError"):
        return HostUnreachable(no_cluster(address))
    return HostUnreachable(f"Ray does not connect to {address}: {' '.join(message.split())[:500]}")


def no_cluster(address: str) -> str:
    """That there is no cluster, and what to do."""
    return (
        f"no Ray cluster answers at {address}; start one with `ray start --head`, or give the pool the right address: HOST:6379 "
        "from a node of the cluster, ray://HOST:10001 from any other machine"
    )
