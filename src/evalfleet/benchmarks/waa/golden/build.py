"""The build of a golden image: Windows is installed in WAA's container, stage by stage, each with a deadline.

The container is started as for tasks, with an empty disk and the ISO that the user names; WAA's own scripts install Windows
and its programs. The guest then proves itself, is shut down as Windows wants it, and the folder gets its manifest. What goes
wrong leaves a picture of the screen and the container's log, and nothing else.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalfleet.benchmarks.waa.docker import Docker, DockerError
from evalfleet.benchmarks.waa.golden import manifest
from evalfleet.benchmarks.waa.golden.manifest import BOOT, DISK, Golden
from evalfleet.benchmarks.waa.golden.transfer import TransferFailed, fetch, is_address
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import ReadinessCheck
from evalfleet.errors import EnvironmentFailed
from evalfleet.version import version

LABEL = "evalfleet=waa-golden"
SPACE_GB = 45.0  # the disk, and the ISO beside it
SHUTDOWN_S = 600.0
SETTLE_S = 180.0  # until the container has noted that Windows ended well
CALL_S = 120.0
PROGRAMS: Mapping[str, tuple[str, str]] = {  # that tasks need and Windows does not bring
    "LibreOffice": (r"C:\Program Files\LibreOffice\program", "soffice.exe"),
    "Chrome": (r"C:\Program Files\Google\Chrome\Application", "chrome.exe"),
    "VLC": (r"C:\Program Files\VideoLAN\VLC", "vlc.exe"),
    "VS Code": (r"C:\Users\Docker\AppData\Local\Programs\Microsoft VS Code", "Code.exe"),
}


class BuildFailed(EnvironmentFailed):
    """A stage failed; `stage` names it."""

    def __init__(self, stage: str, seen: str, remedy: str) -> None:
        super().__init__(f"{stage}: {seen}")
        self.stage, self.seen, self.remedy = stage, seen, remedy


class Order(Struct, frozen=True, kw_only=True):
    """What is to be built, and where."""

    name: str
    folder: Path  # of the image; it must not be there yet
    iso: str | None  # a path or an address; None: the container downloads Windows itself
    install_s: float = 5400.0
    accept_eula: bool = False


class Build:
    """One build under way."""

    def __init__(
        self,
        settings: WaaSettings,
        order: Order,
        tell: Callable[[ReadinessCheck], None],
        say: Callable[[str], None],
        *,
        poll_s: float = 5.0,
        told_s: float = 60.0,
        show: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """`show` gets a picture of the screen every `told_s` while Windows is installed."""
        self._settings, self._order, self._tell, self._say, self._show = settings, order, tell, say, show
        self._poll_s, self._told_s = poll_s, told_s
        self._docker = Docker(settings.docker)
        self._container = f"evalfleet-golden-{order.name}"
        self._partial = order.folder.with_name(f"{order.folder.name}.partial")
        self.failed = order.folder.with_name(f"{order.folder.name}.failed")  # what a build that failed leaves
        self._took: dict[str, float] = {}

    def run(self) -> Golden:
        """Build it. Raises BuildFailed; the screen and the log lie in NAME.failed then."""
        if not self._order.accept_eula:
            raise BuildFailed(
                "licence",
                "Windows has licence terms of its own, and they were not accepted",
                "read them, then say --accept-eula",
            )
        if manifest.read(self._order.folder) is not None:
            raise BuildFailed("folder", f"{self._order.folder} is there already", "choose another name, or delete it")
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        with _alone(self._partial.with_suffix(".lock")), self._cleaned():
            with self._stage("room"):
                self._room()
            with self._stage("iso"):
                iso, sha256 = self._iso()
            with self._stage("container"):
                self._start(iso)
            with self._stage("install"):
                self._install()
            with self._stage("programs"):
                self._programs()
            with self._stage("shutdown"):
                self._shutdown()
            with self._stage("files"):
                golden = self._seal(sha256)
            self._partial.rename(self._order.folder)
            return golden

    @contextmanager
    def _stage(self, name: str) -> Generator[None]:
        begun = time.monotonic()
        try:
            yield
        except (BuildFailed, DockerError, TransferFailed, OSError) as error:
            seen, remedy = (error.seen, error.remedy) if isinstance(error, BuildFailed) else (str(error), "")
            evidence = self._evidence(name)
            remedy = ". ".join(filter(None, (remedy, evidence)))
            self._tell(ReadinessCheck(name=name, holds=False, seen=seen, remedy=remedy, took_s=_since(begun)))
            raise BuildFailed(name, seen, remedy) from None
        self._took[name] = _since(begun)
        self._tell(ReadinessCheck(name=name, holds=True, seen=self._seen, took_s=self._took[name]))

    _seen = ""

    @contextmanager
    def _cleaned(self) -> Generator[None]:
        """Nothing of an earlier build that was killed, and nothing of this one, stays."""
        self._sweep()
        try:
            yield
        finally:
            self._sweep()

    def _sweep(self) -> None:
        with contextlib.suppress(DockerError):
            if self._docker.state(self._container) is not None:
                self._docker.remove(self._container)
        shutil.rmtree(self._partial, ignore_errors=True)

    # The stages

    def _room(self) -> None:
        free_gb = shutil.disk_usage(self._partial.parent).free / 1e9
        self._seen = f"{free_gb:.0f} GB free"
        if free_gb < min(SPACE_GB, self._settings.disk_gb):
            raise BuildFailed("room", self._seen, f"free some space: an image needs {SPACE_GB:g} GB")
        self._partial.mkdir()

    def _iso(self) -> tuple[Path | None, str | None]:
        source = self._order.iso
        if source is None:
            self._seen = "the container downloads Windows itself"
            return None, None
        if is_address(source):
            path = self._partial.with_suffix(".iso")
            sha256 = fetch(source, path, self._say)
        else:
            path = Path(source).expanduser().absolute()
            if not path.is_file():
                raise BuildFailed(
                    "iso", f"there is no file {path}", "download the ISO of Windows 11 Enterprise Evaluation"
                )
            sha256 = manifest.sha256_of(path)
        self._seen = f"{path.stat().st_size / 1e9:.1f} GB, SHA-256 {sha256[:12]}…"
        return path, sha256

    def _start(self, iso: Path | None) -> None:
        settings = self._settings
        mounts = ["--volume", f"{self._partial}:/storage"]
        if iso is not None:
            mounts += ["--mount", f"type=bind,source={iso},target=/custom.iso,readonly"]
        kvm = ["--device", "/dev/kvm"] if settings.kvm else ["--env", "KVM=N"]
        self._docker.run(
            [
                *("--name", self._container, "--label", LABEL, "--platform", "linux/amd64", "--cap-add", "NET_ADMIN"),
                *(*kvm, *mounts, *settings.run_args),
                *("--entrypoint", "/bin/bash", settings.image, "-c", settings.entry),
            ],
            settings.container_timeout_s,
        )
        self._seen = f"{settings.image} runs as {self._container}"

    def _install(self) -> None:
        """Wait until Windows answers; say now and then how far its disk has grown."""
        begun = told = time.monotonic()
        while True:
            if self._docker.state(self._container) != "running":
                words = self._docker.last_words(self._container) or "no output"
                raise BuildFailed("install", f"the container ended: {words}", "")
            error = self._guest_error()
            if error is None:
                break
            now = time.monotonic()
            if now - begun >= self._order.install_s:
                seen = f"Windows did not answer within {self._order.install_s:g} s ({self._disk()}): {error}"
                raise BuildFailed("install", seen, "look at the picture of its screen")
            if now - told >= self._told_s:
                told = now
                self._say(f"Windows is being installed: {self._disk()}, {_since(begun) / 60:.0f} min")
                with contextlib.suppress(DockerError, ValueError):
                    self._show(self._screen())
            time.sleep(self._poll_s)
        self._seen = f"Windows answers ({self._disk()})"

    def _programs(self) -> None:
        names = list(PROGRAMS)
        answer = self._ask(exists=[PROGRAMS[name] for name in names])
        missing = [name for name, there in zip(names, answer.get("there", []), strict=False) if not there]
        if "there" not in answer or missing:
            seen = f"not found in Windows: {', '.join(missing)}" if missing else str(answer.get("error"))
            raise BuildFailed(
                "programs", seen, "their installation in Windows failed, often for lack of a network; build again"
            )
        self._seen = ", ".join(names)

    def _shutdown(self) -> None:
        status = self._ask(shutdown=True)
        if status.get("status") != 200:
            raise BuildFailed("shutdown", f"Windows did not take the order: {status}", "")
        self._wait(
            SHUTDOWN_S, lambda: not self._ask(qmp=self._settings.qmp_port).get("runs"), "Windows did not shut down"
        )
        self._wait(SETTLE_S, (self._partial / BOOT).exists, f"the container did not write {BOOT}")
        self._seen = "Windows has shut down"
        self._docker.remove(self._container)

    def _seal(self, iso_sha256: str | None) -> Golden:
        if not (self._partial / DISK).is_file():
            raise BuildFailed("files", f"there is no {DISK}", "")
        golden = Golden(
            name=self._order.name,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            image=self._settings.image,
            digest=self._digest(),
            iso=os.path.basename(self._order.iso.partition("?")[0]) if self._order.iso else None,
            iso_sha256=iso_sha256,
            eula_accepted=True,
            programs=tuple(PROGRAMS),
            stages_s=self._took,
            evalfleet=version(),
            files=manifest.files_in(self._partial),
        )
        manifest.write(self._partial, golden)
        manifest.protect(self._partial)
        self._seen = f"{golden.bytes / 1e9:.1f} GB in {len(golden.files)} files"
        return golden

    # Looking

    def _guest_error(self) -> str | None:
        plan = {
            "do": "wait",
            "guest": [self._settings.guest, self._settings.guest_port],
            "guest_timeout_s": 0.0,
            "qmp_port": self._settings.qmp_port,
            "poll_s": self._settings.poll_s,
        }
        try:
            news = self._docker.do(self._container, self._settings.python, plan, CALL_S)
        except (DockerError, ValueError) as error:
            return str(error)
        return next((one["guest"] for one in news if "guest" in one), None)

    def _ask(self, **plan: object) -> dict[str, Any]:
        plan = {"guest": [self._settings.guest, self._settings.guest_port], **plan}
        return self._docker.ask(self._container, self._settings.python, plan, CALL_S)

    def _wait(self, seconds: float, holds: Callable[[], bool], otherwise: str) -> None:
        until = time.monotonic() + seconds
        while not holds():
            if time.monotonic() >= until:
                raise BuildFailed("shutdown", f"{otherwise} within {seconds:g} s", "")
            time.sleep(self._poll_s)

    def _disk(self) -> str:
        try:
            return f"{(self._partial / DISK).stat().st_blocks * 512 / 1e9:.1f} GB on its disk"
        except OSError:
            return "no disk yet"

    def _screen(self) -> bytes:
        """A picture of it. Raises DockerError, and ValueError where there is none."""
        answer = self._ask(screen=self._settings.qmp_port)
        if not answer.get("screen"):
            raise ValueError(f"no picture of the screen: {answer.get('error')}")
        return base64.b64decode(answer["screen"])

    def _digest(self) -> str | None:
        with contextlib.suppress(DockerError):
            return self._docker.call("image", "inspect", "--format", "{{index .RepoDigests 0}}", self._settings.image)
        return None

    def _evidence(self, stage: str) -> str:
        """Keep the screen and the log; says where."""
        shutil.rmtree(self.failed, ignore_errors=True)
        kept: list[str] = []
        with contextlib.suppress(DockerError, OSError, ValueError):
            if self._docker.state(self._container) is None:
                return ""
            self.failed.mkdir(parents=True)
            (self.failed / "container.log").write_text(self._docker.call("logs", "--tail", "500", self._container))
            kept.append("container.log")
            (self.failed / "screen.png").write_bytes(self._screen())
            kept.append("screen.png")
        return f"Evidence of stage {stage}: {', '.join(kept)} in {self.failed}" if kept else ""


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    """One build of an image at a time on this machine."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BuildFailed("folder", "another build of this image runs on this machine", "wait for it") from None
        yield


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)
