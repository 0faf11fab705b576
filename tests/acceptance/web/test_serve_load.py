"""Many readers and many events: what that costs the server, measured from outside."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.fleet import Fleet
from tests.support.web_server import Served, serve

from evalfleet.store.open import open_store

READERS = 200
EVENTS = 1000  # a second
SECONDS = 4
BATCHES = 20  # a second
MARK = b"\nid: "


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def write(home: Path, ready: threading.Event) -> None:
    """So many events a second, in batches, as controllers write them."""
    with closing(open_store(home)) as store:
        ready.wait()
        begun = time.monotonic()
        for i in range(SECONDS * BATCHES):
            with store.batch():
                for _ in range(EVENTS // BATCHES):
                    store.events.note(
                        "r1", "attempt.progressed", {"step": i, "lines": [{"step": i, "note": "clicked"}]}
                    )
            time.sleep(max(0.0, begun + (i + 1) / BATCHES - time.monotonic()))


async def read(server: Served, wanted: int, ready: asyncio.Event, result: list[tuple[int, list[float]]]) -> None:
    """Count the events; look closely at one of each frame, because the client must not be what is measured."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24)
    head = f"GET /api/v1/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    writer.write(head.encode())
    data = await reader.readuntil(b"hello")
    ready.set()
    seen, delays, rest = 0, list[float](), b""
    while seen < wanted:
        data = await reader.read(1 << 20)
        assert data, f"disconnected after {seen}"
        seen += (rest + data).count(MARK)
        rest = data[-len(MARK) + 1 :]  # what may be the beginning of one
        line = data[data.rfind(b"\ndata: {") + 7 :].split(b"\n", 1)
        if len(line) == 2 and line[0].startswith(b'{"number"') and line[0].endswith(b"}"):
            delays.append(time.time() - json.loads(line[0])["at"])
    writer.close()
    result.append((seen, delays))


@pytest.mark.slow
def test_two_hundred_readers_cost_little(fleet: Fleet):
    server = serve(fleet, "--no-drive")
    go = threading.Event()
    writer = threading.Thread(target=write, args=(fleet.home, go))
    writer.start()
    result: list[tuple[int, list[float]]] = []
    wanted = EVENTS * SECONDS

    async def everybody() -> tuple[float, float]:
        async with asyncio.TaskGroup() as group:
            events = [asyncio.Event() for _ in range(READERS)]
            for event in events:
                group.create_task(read(server, wanted, event, result))
            for event in events:
                await event.wait()
            before, begun = cpu_s(server.process.pid), time.monotonic()
            go.set()
        return cpu_s(server.process.pid) - before, time.monotonic() - begun

    spent_s, took_s = asyncio.run(everybody())
    writer.join()
    delays = sorted(delay for _, found in result for delay in found)
    p95 = delays[int(len(delays) * 0.95)]
    memory = memory_mb(server.process.pid)
    print(
        f"\n{READERS} readers, {EVENTS} events/s for {took_s:.1f} s: {spent_s / took_s:.2f} of a core, "
        f"p95 {p95 * 1000:.0f} ms, {memory:.0f} MB"
    )
    assert len(result) == READERS
    assert spent_s / took_s < 0.5, "one that encodes or sends every event for every reader needs several cores"
    assert p95 < 2.0, "on a busy machine; alone it is a tenth of a second"
    assert memory < 150
