"""The environment `vm`, held to the promises of all environments, with a real guest under QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.test_environments import DesktopContract
from tests.support.guests import guest, opening

from evalfleet.environments.base import Environment
from evalfleet.environments.vm import environment as vm
from evalfleet.testing.environment_contract import mark

__all__ = ["mark"]

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


class TestVm(DesktopContract):
    vital = "qemu"
    is_loud = ("sh", "-c", "yes x | head -c 9000000; yes x | head -c 9000000 >&2")

    def edit(self, environment: Environment) -> None:
        assert isinstance(environment, vm.Vm)
        environment.write("text.txt", b"")
        environment.launch(["mousepad", "--disable-server", "text.txt"])
        environment.wait_for_windows(lambda windows: any(each.active for each in windows), "the editor", timeout_s=300)

    @property
    def holder(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return opening(guest())

    @pytest.fixture(scope="class")
    @classmethod
    def environment(cls, mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
        folder: Path = tmp_path_factory.mktemp("vm")
        with vm.launched(guest(), view=folder / "vnc.sock") as opened:
            yield opened
        assert list(folder.iterdir()) == []
