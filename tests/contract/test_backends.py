from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import sshd
from tests.support.fake_backend import FakeBackend
from tests.support.fleet import wait_for

from evalfleet.hosts.base import Backend
from evalfleet.hosts.local.backend import LocalBackend, LocalSettings
from evalfleet.hosts.local.launcher import runner_info
from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import BackendContract, launch


class TestLocalBackend(BackendContract):
    @pytest.fixture
    def backend(self, home: Path) -> Iterator[LocalBackend]:
        yield LocalBackend(Home(home), LocalSettings(python=sys.executable, idle_s=60.0))
        runner = runner_info(home / "spool")
        if runner is not None:
            os.kill(runner.pid, signal.SIGTERM)
            wait_for(lambda: runner_info(home / "spool") is None, "the runner's end")


class TestSshBackend(BackendContract):
    @pytest.fixture
    def backend(self, home: Path, tmp_path: Path) -> Iterator[Backend]:
        with sshd.host(tmp_path) as server:
            yield SshBackend(Home(home), server.spec(), SshSettings(idle_s=60.0, known_hosts=()))


class TestFakeBackend(BackendContract):
    @pytest.fixture
    def backend(self) -> FakeBackend:
        return FakeBackend()

    async def test_a_test_may_doom_it(self, backend: FakeBackend) -> None:
        async with self.connected(backend) as (host, watcher):
            await host.launch([launch("run1.1.1", "sleep", "60")])
            backend.preempt("gone by noon")
            assert await host.preemption_notice() == "gone by noon"
            await host.launch([launch("run1.1.1", "sleep", "60"), launch("run1.2.1", "true")])
            assert (await watcher.until("run1.2.1")).data["cause"] == "preempted"
            assert backend.launched == ["run1.1.1"]
        async with self.connected(backend, run="run2") as (later, _):
            assert await later.preemption_notice() == "gone by noon"
