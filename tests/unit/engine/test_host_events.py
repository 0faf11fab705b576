"""Events of hosts that are made ready: from the host's records to the event log, never out of sentences."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

from evalfleet.core.readiness import HostEvent, Pull, ReadinessCheck
from evalfleet.engine.hosts.host_events import HostEvents
from evalfleet.errors import HostRefused, HostUnreachable
from evalfleet.hosts.ssh import tools as ssh_tools
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec
from evalfleet.model import Tools

PULL = Pull(image="registry.test/waa:1", progress="no layer yet", took_s=0.0)
GOOD = ReadinessCheck(name="image", holds=True, seen="pulled")
BAD = ReadinessCheck(name="image", holds=False, seen="no space left", remedy="make room")


class Box:
    """A host whose readiness program answers as scripted; what it reports ends in `lines` and `events`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.answers: list[Any] = []
        self.news = HostEvents(self.lines.append)
        spec = SshHostSpec(name="box", login=Login(address="box.test"))
        self.tools = ssh_tools.HostTools(spec, Tools(benchmark="waa"), self.news)
        monkeypatch.setattr(ssh_tools, "AGAIN_S", 0.0)
        monkeypatch.setattr(ssh_tools, "package_of", lambda _: None)
        monkeypatch.setattr(ssh_tools, "install", self._install)
        monkeypatch.setattr(ssh_tools, "run_checks", self._checks)

    async def _install(self, *_: Any) -> ssh_tools.InstalledTools:
        return ssh_tools.InstalledTools(python="python3", fresh=False)

    async def _checks(self, _connection: Any, _python: Any, _tools: Any, tell: Any, say: Any) -> list[ReadinessCheck]:
        checks: list[ReadinessCheck] = []
        for answer in self.answers:
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, ReadinessCheck):
                checks.append(answer)
                tell(answer)
            else:
                say(answer)
        return checks

    def connect(self, *answers: Any, busy: bool = False) -> list[tuple[str, Any]]:
        self.answers = list(answers)
        with suppress(HostRefused, HostUnreachable):
            anyio.run(lambda: self.tools.prepare(None, busy=busy))  # type: ignore[arg-type] - not used by the script
        return [(event.type, event.data.get("error")) for event in self.news.take()]


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(monkeypatch)


def test_a_pull_that_succeeds(box: Box):
    assert box.connect(PULL, PULL, GOOD) == [("worker.pulling", None), ("worker.pulled", None)]
    assert box.lines == ["host box: pulls registry.test/waa:1: no layer yet, 0 s"] * 2


def test_a_pull_that_fails(box: Box):
    assert box.connect(PULL, BAD) == [("worker.pulling", None), ("worker.pulled", "no space left")]
    assert box.lines[-1].startswith("host box: gets no work: ")


def test_a_sentence_makes_no_event(box: Box):
    assert box.connect("pulls registry.test/waa:1: 3 of 3 layers, 12 s", "gets no work: x", GOOD) == []
    assert len(box.lines) == 2


def test_a_program_that_dies_while_it_pulls_has_ended_the_pull(box: Box):
    assert box.connect(PULL, HostRefused("it ended")) == [("worker.pulling", None), ("worker.pulled", "it ended")]


def test_a_pull_outlives_a_broken_connection(box: Box):
    assert box.connect(PULL, HostUnreachable("broken")) == [("worker.pulling", None)]
    assert box.connect(PULL, HostUnreachable("broken")) == []
    assert box.connect(GOOD) == [("worker.pulled", None)]


def test_a_busy_host_that_is_reached_again_has_its_image(box: Box):
    assert box.connect(PULL, HostUnreachable("broken")) == [("worker.pulling", None)]
    assert box.connect(busy=True) == [("worker.pulled", None)]


def test_lines_and_events_part_ways():
    lines: list[str] = []
    news = HostEvents(lines.append)
    event = HostEvent(host="box", type="worker.pulling", data={})
    news("host box: a line")
    news(event)
    assert (lines, news.take(), news.take()) == (["host box: a line"], [event], [])
