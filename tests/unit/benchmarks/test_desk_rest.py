"""When a desktop rests: nobody of its processes has work to do, whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.fleet import wait_for

from evalfleet.environments.desktop import idle

CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"


@contextmanager
def below(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for a child with this program."""
    words = [sys.executable, "-c", CHILD.format(program=program)]
    with subprocess.Popen(words, start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, 9)


@pytest.mark.parametrize("told", [True, False], ids=["kernel tells children", "kernel does not"])
def test_a_child_at_work_and_one_asleep(monkeypatch: pytest.MonkeyPatch, told: bool):
    monkeypatch.setattr(idle, "_KERNEL_TELLS_CHILDREN", told)
    with below("while True: pass") as top:
        wait_for(lambda: all(idle.any_process_busy(top.pid) for _ in range(20)), "the child to work all the time")
    with below("import time; time.sleep(300)") as top:
        wait_for(lambda: not any(idle.any_process_busy(top.pid) for _ in range(20)), "the child to be asleep")
