"""The build of a golden image as a task: `python -m evalfleet.benchmarks.waa.golden.attempt`, started by the runner on a machine.

It prepares the machine (Docker, KVM, the container's image), builds the image and stores it. Each stage is an event line;
pictures of the screen, the container's log and the manifest are artifacts. It can run again after a crash: what an earlier
attempt built on this machine is kept, and what it left half done is removed.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import replace

from evalfleet import config
from evalfleet.benchmarks.waa.golden import manifest
from evalfleet.benchmarks.waa.golden.build import Build, BuildFailed, Order
from evalfleet.benchmarks.waa.golden.check import golden_folder
from evalfleet.benchmarks.waa.golden.manifest import Golden
from evalfleet.benchmarks.waa.golden.transfer import TransferFailed, is_address, shown, signed, store_golden
from evalfleet.benchmarks.waa.readiness import Means, host_checks
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import ReadinessCheck, Update
from evalfleet.model import Kind

ISO_SECRET = "WAA_ISO_SAS"  # name of the variable with the signature of the ISO's address


class BuildAttempt:
    """One attempt, as its task says."""

    def __init__(self, payload: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        # The machine must not wait for the image itself.
        self._settings = replace(WaaSettings(**payload["waa"]), golden=None, storage=None)
        self._payload, self._environ = payload, environ
        self._events, self._artifacts = Path(environ["EVALFLEET_EVENTS"]), Path(environ["EVALFLEET_ARTIFACTS"])
        self._pictures = 0

    def run(self) -> dict[str, Any]:
        """The result. A stage that fails is the build's own failure: another machine would do no better."""
        self._event(ready=True, note=f"golden image {self._payload['name']}")
        try:
            for check in host_checks(self._settings, Means(say=self._say, secrets=self._environ)):
                self._tell(check)
                if not check.holds:
                    return {"error": check.said(), "error_kind": Kind.TASK_ERROR}
            folder = golden_folder(self._settings, self._payload["name"])
            golden = manifest.read(folder) or self._built(folder)
            shutil.copyfile(folder / manifest.NAME, self._artifacts / manifest.NAME)
            self._store(folder, golden)
        except (BuildFailed, TransferFailed) as error:
            remedy = f"; {error.remedy}" if isinstance(error, BuildFailed) and error.remedy else ""
            return {"error": f"{error}{remedy}", "error_kind": Kind.TASK_ERROR}
        return {"score": 1.0, "metrics": {"bytes": golden.bytes}}

    def _built(self, folder: Path) -> Golden:
        payload, iso = self._payload, self._payload["iso"]
        order = Order(
            name=payload["name"],
            folder=folder,
            iso=None if iso is None else signed(iso, self._environ.get(ISO_SECRET)),
            install_s=self._settings.install_timeout_s,
            accept_eula=payload["accept_eula"],
        )
        poll_s, told_s = self._settings.poll_s, payload["told_s"]
        build = Build(self._settings, order, self._tell, self._say, poll_s=poll_s, told_s=told_s, show=self._show)
        try:
            return build.run()
        finally:
            if build.failed.is_dir():
                shutil.copytree(build.failed, self._artifacts, dirs_exist_ok=True)

    def _store(self, folder: Path, golden: Golden) -> None:
        to = self._payload["to"]
        if to is not None:
            store_golden(folder, golden, signed(to, self._environ.get(self._settings.golden_secret)), self._say)
            self._event(note=f"+ store: {golden.bytes / 1e9:.1f} GB in {shown(to)}")

    # What is told

    def _tell(self, check: ReadinessCheck) -> None:
        took = f" ({check.took_s:.1f} s)" if check.took_s else ""
        self._event(note=f"{'+' if check.holds else '-'} {check.said()}{took}")

    def _say(self, update: Update) -> None:
        self._event(note=str(update))

    def _show(self, picture: bytes) -> None:
        self._pictures += 1
        name = f"screen-{self._pictures:03d}.png"
        (self._artifacts / name).write_bytes(picture)
        self._event(step=self._pictures, screenshot=name)

    def _event(self, **line: Any) -> None:
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def is_signed(address: str) -> bool:
    """Whether an address carries a signature, which is a secret."""
    return is_address(address) and "sig=" in address


def _stop(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)  # the build removes its container


def main() -> int:
    signal.signal(signal.SIGTERM, _stop)
    environ = config.environment()
    task: dict[str, Any] = json.loads(Path(environ["EVALFLEET_TASK"]).read_text("utf-8"))
    result = BuildAttempt(task["payload"], environ).run()
    Path(environ["EVALFLEET_RESULT"]).write_text(json.dumps(result), "utf-8")
    if "error" in result:
        print(result["error"], file=sys.stderr)
    return int("error" in result)


if __name__ == "__main__":
    sys.exit(main())
