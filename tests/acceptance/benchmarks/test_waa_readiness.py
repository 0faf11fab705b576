"""Preparing waa brings what is missing: against the stand-in's real `docker` command and its daemon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from examples.fake_waa.arena import Arena, arena
from msgspec.structs import asdict, replace

from evalfleet import config
from evalfleet.benchmarks.waa import docker_install, readiness
from evalfleet.benchmarks.waa.docker import Docker
from evalfleet.benchmarks.waa.flags import flags_check
from evalfleet.benchmarks.waa.image import Layers, registry_of
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import ReadinessCheck, Update

PASSWORD = "a-password-that-nobody-sees"


@pytest.fixture
def waa(tmp_path: Path) -> Iterator[Arena]:
    with arena(tmp_path / "arena", (f"waa-{uuid.uuid4().hex[:8]}",)) as made:
        yield made


def settings_of(made: Arena, tmp_path: Path, **more: object) -> WaaSettings:
    (tmp_path / "evalfleet.toml").write_text(made.config(disk_gb=0, guest_timeout="20s", poll="50ms"))
    return replace(config.load(tmp_path / "home", environ={}, folder=tmp_path).table("waa", WaaSettings), **more)


class Preparation:
    """One preparation, with all that was said in it."""

    def __init__(self, settings: WaaSettings, **secrets: str) -> None:
        self.said: list[str] = []
        means = readiness.Means(
            say=lambda update: self.said.append(str(update)), secrets=secrets, pauses_s=(0.01, 0.01)
        )
        self.checks = readiness.prepare(settings, lambda _: None, means)

    @property
    def last(self) -> ReadinessCheck:
        return self.checks[-1]

    @property
    def ready(self) -> bool:
        return all(check.holds for check in self.checks)


def test_a_pull_that_fails_twice_succeeds(waa: Arena, tmp_path: Path):
    waa.end(waa.containers[0])
    waa.lose_image("fail", "fail")
    done = Preparation(settings_of(waa, tmp_path))
    assert done.ready, done.last
    assert [check.seen for check in done.checks if check.name == "image"] == ["windowsarena/winarena:latest, pulled"]
    assert sum("connection reset by peer; retrying in" in line for line in done.said) == 2
    assert "pulls windowsarena/winarena:latest: 3 of 3 layers, " in done.said[-1]
    calls = waa.calls()
    assert sum(call[0] == "pull" for call in calls) == 3
    assert sum(call[:2] == ["container", "prune"] for call in calls) == 2, "what failed pulls leave is removed"


def test_a_pull_that_fails_thrice_is_told(waa: Arena, tmp_path: Path):
    waa.end(waa.containers[0])
    waa.lose_image("fail", "fail", "fail")
    done = Preparation(settings_of(waa, tmp_path))
    assert (done.last.name, done.last.holds) == ("image", False)
    assert "connection reset by peer (tried 3 times)" in done.last.seen
    assert "docker pull windowsarena/winarena:latest" in done.last.remedy


def test_a_pull_that_hangs_is_ended(waa: Arena, tmp_path: Path):
    waa.end(waa.containers[0])
    waa.lose_image("hang")
    done = Preparation(settings_of(waa, tmp_path, pull_timeout_s=0.5))
    assert done.ready, done.last
    assert any("docker pull did not end within 0.5 s (1 of 3 layers)" in line for line in done.said)


def test_a_pull_that_nobody_waits_for_any_more_ends_and_leaves_no_login(waa: Arena, tmp_path: Path):
    waa.end(waa.containers[0])
    waa.lose_image("hang")
    waa.want_login(PASSWORD)
    waa_settings = settings_of(waa, tmp_path, registry_user="puller", registry_secret="KEY", pull_timeout_s=600.0)
    orders = {
        "benchmark": "waa",
        "settings": {"chromium": None, "waa": asdict(waa_settings)},
        "secrets": {"KEY": PASSWORD},
        "restarted": None,
    }
    program = [sys.executable, "-m", "evalfleet.benchmarks.readiness"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        process.stdin.flush()
        while b'"pull": {"image": "windowsarena/winarena:latest"' not in process.stdout.readline():
            assert process.poll() is None
        folder = Path(next(call for call in waa.calls() if "login" in call)[1])
        assert folder.is_dir()
        process.stdin.close()
        assert process.wait(20) == 1
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
        assert not folder.exists()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_a_pull_is_told_now_and_then():
    said: list[Update] = []
    layers = Layers("it", said.append, 0.0)
    for second in range(200):
        if second == 1:
            layers.read("0a1b2c3d: Pulling fs layer")
            layers.read("Digest: sha256:00")
        if second == 9:
            layers.read("0a1b2c3d: Pull complete")
        layers.look(float(second))
    assert [str(update) for update in said] == [
        "pulls it: no layer yet, 0 s",
        "pulls it: 0 of 1 layers, 5 s",
        "pulls it: 1 of 1 layers, 10 s",
        "pulls it: 1 of 1 layers, 70 s",
        "pulls it: 1 of 1 layers, 130 s",
        "pulls it: 1 of 1 layers, 190 s",
    ]


def test_a_registry_wants_a_login(waa: Arena, tmp_path: Path):
    waa.end(waa.containers[0])
    waa.lose_image()
    waa.want_login(PASSWORD)
    settings = settings_of(waa, tmp_path, image="mine.azurecr.io/winarena:3", registry_user="puller")
    done = Preparation(settings)
    assert "the variable WAA_REGISTRY_PASSWORD with the password is not" in done.last.seen
    done = Preparation(settings, WAA_REGISTRY_PASSWORD="wrong")
    assert "docker login failed: Error response from daemon: unauthorized" in done.last.seen
    done = Preparation(settings, WAA_REGISTRY_PASSWORD=PASSWORD)
    assert done.ready, done.last
    logins = [call for call in waa.calls() if "login" in call]
    folder = logins[-1][1]
    assert logins[-1][2:] == ["login", "mine.azurecr.io", "--username", "puller", "--password-stdin"]
    assert not os.path.exists(folder), "what Docker keeps of a login is gone"
    assert PASSWORD not in str(waa.calls())


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("windowsarena/winarena:latest", None),
        ("mine.azurecr.io/a/b:1", "mine.azurecr.io"),
        ("localhost/x", "localhost"),
        ("box:5000/x@sha256:00", "box:5000"),
        ("winarena", None),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str | None):
    assert registry_of(image) == registry


def test_a_full_disk_is_swept_and_then_said(waa: Arena, tmp_path: Path):
    waa.end(waa.containers[0])
    waa.lose_image()
    done = Preparation(settings_of(waa, tmp_path, disk_gb=1e9))
    assert [(check.name, check.holds) for check in done.checks] == [("disk", False)]
    assert f"GB free in {waa.docker}, after evalfleet's leftovers were removed" in done.last.seen
    assert "[waa] disk_gb" in done.last.remedy
    assert ["container", "prune", "--force", "--filter", "label=evalfleet=waa"] in waa.calls()
    waa.bring_image()
    assert Preparation(settings_of(waa, tmp_path, disk_gb=1e9)).ready, "an image that is there needs no room"


def test_a_container_of_ours_that_cannot_be_started_is_made_anew(waa: Arena, tmp_path: Path):
    name, storage = f"{waa.containers[0]}-ours", tmp_path / "storage"
    storage.mkdir()
    (storage / "data.img").touch()
    settings = settings_of(waa, tmp_path, containers=(name,), storage=str(storage))
    assert Preparation(settings).ready
    waa.end(name)
    waa.break_container(name)
    done = Preparation(settings)
    assert done.ready, done.last
    assert [call[0] for call in waa.calls() if name in call and call[0] in ("rm", "run")] == ["run", "rm", "run"]
    # One that somebody else made is theirs.
    theirs = waa.containers[0]
    waa.end(theirs)
    waa.break_container(theirs)
    done = Preparation(replace(settings, containers=(theirs,)))
    assert "docker start failed" in done.last.seen
    assert ["rm", "--force", theirs] not in waa.calls()


def test_a_dead_container_is_restarted_once(waa: Arena, tmp_path: Path):
    settings = settings_of(waa, tmp_path)
    (name,) = waa.containers
    assert [(check.seen, check.holds) for check in readiness.recheck(settings)] == [("answers", True)]
    waa.end(name)
    assert [(check.restarted, check.holds) for check in readiness.recheck(settings)] == [(True, True)]
    assert waa.restarts() == 1
    waa.end(name)
    (check,) = readiness.recheck(settings, restarted={name})
    assert (check.name, check.of, check.holds, waa.restarts()) == ("container", name, False, 1)


class Monitor(threading.Thread):
    """QEMU's monitor: takes commands, and is gone once Windows has shut down."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard: list[str] = []

    def run(self) -> None:
        link, _ = self._listener.accept()
        self._listener.close()
        with link, link.makefile("r") as commands:
            link.sendall(b'{"QMP": {"version": {}}}\n')
            while "system_powerdown" not in self.heard:
                self.heard.append(json.loads(commands.readline())["execute"])
                link.sendall(b'{"return": {}}\n')


def test_windows_is_asked_to_shut_down_before_a_restart(waa: Arena, tmp_path: Path):
    monitor = Monitor()
    monitor.start()
    settings = settings_of(waa, tmp_path, qmp_port=monitor.port)
    begun = time.monotonic()
    readiness.restart(Docker(settings.docker), settings, waa.containers[0])
    assert (monitor.heard, time.monotonic() - begun < 20) == (["qmp_capabilities", "system_powerdown"], True)
    assert waa.calls()[-1] == ["restart", "-t", "1", waa.containers[0]]
    # A machine without a monitor is switched off, and one whose writes are lost anyway is not asked.
    readiness.restart(Docker(settings.docker), settings, waa.containers[0])
    before = len(waa.calls())
    readiness.restart(Docker(settings.docker), replace(settings, reset="overlay"), waa.containers[0])
    assert [call[0] for call in waa.calls()[before:]] == ["restart"]
    assert waa.restarts() == 3


def test_an_overlay_starts_from_the_golden_disk(waa: Arena, tmp_path: Path):
    """One golden disk for several containers, whose QEMU throws away what is written."""
    storage = tmp_path / "golden"
    storage.mkdir()
    (storage / "data.img").touch()
    both = (f"{waa.containers[0]}-a", f"{waa.containers[0]}-b")
    settings = settings_of(waa, tmp_path, containers=both, storage=str(storage))
    assert "one golden image cannot serve several containers" in Preparation(settings).last.seen
    one = replace(settings, containers=both[:1])
    assert Preparation(one).ready
    overlay = replace(settings, reset="overlay")
    (check,) = readiness.container_checks(replace(overlay, storage=None), both[0], start=True)
    assert (check.holds, check.seen) == (False, "its QEMU runs without -snapshot")
    done = Preparation(overlay)  # the one that was made without is made anew
    assert done.ready, done.last
    docker = Docker(settings.docker)
    wanted = f"ARGUMENTS=-qmp tcp:0.0.0.0:{settings.qmp_port},server,nowait -snapshot"
    assert all(wanted in docker.environment(name) for name in both)
    made = [call for call in waa.calls() if call[0] in ("run", "rm")]
    assert sorted(call[0] for call in made) == ["rm", "run", "run", "run"]
    assert Preparation(overlay).ready
    assert len([call for call in waa.calls() if call[0] == "run"]) == 3


def test_docker_is_installed_where_it_is_missing(waa: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    settings = settings_of(waa, tmp_path, docker="docker", install_docker=True)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(docker_install, "as_root", list)
    done = Preparation(settings)
    assert "not installed, and the installation failed: there is no apt-get here" in done.last.seen
    # It brings a command that is a link to the stand-in's, which looks for its daemon beside itself.
    asked = programs / "asked"
    apt = programs / "apt-get"
    apt.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\ncase "$*" in *install*) /bin/cp {waa.docker}/docker {programs}/docker; '
        f"/bin/ln -s {waa.folder}/etc {tmp_path}/etc;; esac\n"
    )
    apt.chmod(0o755)
    os.symlink("/usr/bin/env", programs / "env")
    assert not Preparation(replace(settings, install_docker=False)).ready
    done = Preparation(settings)
    assert done.ready, done.last
    assert [check.seen for check in done.checks if check.name == "docker"] == ["installed, version 28.0.0-emulated"]
    assert asked.read_text().splitlines() == ["-q update", "-q install -y --no-install-recommends docker.io"]
    assert "installs docker.io with apt-get" in done.said


def test_what_apt_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    os.symlink("/usr/bin/env", programs / "env")
    (programs / "apt-get").write_text("#!/bin/sh\necho 'E: Could not get lock' >&2\nexit 100\n")
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(docker_install, "as_root", list)
    done = Preparation(WaaSettings(install_docker=True, disk_gb=0))
    assert "E: Could not get lock" in done.last.seen
    monkeypatch.setattr(docker_install, "as_root", lambda: None)
    done = Preparation(WaaSettings(install_docker=True, disk_gb=0))
    assert "not root and cannot use sudo without a password" in done.last.seen


RUN_PY = """
parser.add_argument("--som_origin", type=str, default="oss")
parser.add_argument(
    "--a11y_backend", type=str)
"""


@pytest.mark.parametrize(
    ("flags", "text", "holds", "said"),
    [
        (("--som_origin", "a11y", "--a11y_backend=uia"), RUN_PY, True, "run.py knows them"),
        (("--som", "a11y"), RUN_PY, True, "run.py knows them"),
        (("--som_orgin", "a11y"), RUN_PY, False, "does not know --som_orgin, and would ignore it"),
        (("--a11y-backend=uia",), RUN_PY, False, 'did you mean "--a11y_backend"?'),
        (("--any",), "parse(read(FLAGS))", True, "not checked"),
        (("--any",), None, False, "No such file"),
    ],
)
def test_flags_that_run_py_would_ignore_are_found(
    tmp_path: Path, flags: tuple[str, ...], text: str | None, holds: bool, said: str
):
    if text is not None:
        (tmp_path / "run.py").write_text(text)
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')  # exec CONTAINER cat PATH
    docker.chmod(0o700)
    check = flags_check(Docker(str(docker)), WaaSettings(client=str(tmp_path), flags=flags), "winarena")
    assert (check.name, check.of, check.holds) == ("flags", "winarena", holds)
    assert said in check.said()


def test_preparing_ends_with_flags_that_run_py_would_ignore(waa: Arena, tmp_path: Path):
    settings = settings_of(waa, tmp_path)
    program = Path(settings.client, "run.py")
    program.write_text(program.read_text("utf-8") + "".join(f"\n# {line}" for line in RUN_PY.splitlines()), "utf-8")
    assert Preparation(replace(settings, flags=("--som_origin", "a11y"))).ready
    done = Preparation(replace(settings, flags=("--som_orgin", "a11y")))
    assert (done.last.name, done.last.holds, done.last.remedy) == ("flags", False, "correct [waa] flags")
