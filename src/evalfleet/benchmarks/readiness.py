"""Whether the machine that this runs on is ready for a benchmark, and making it so: `prepare` here, and as a program on hosts.

As a program, `python -m evalfleet.benchmarks.readiness`, it reads one line of JSON (`benchmark`, `settings` of the machine that
asks, values of `secrets`, and `restarted`: null to prepare, a list to check again) and answers in marked lines, because a login
shell may say things first: ``tell`` (a line for people), ``pull`` (how far the pull of an image is), ``check``, and at last
``done`` or ``error``. It ends when its standard input does, and what it started ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from evalfleet import config
from evalfleet.benchmarks import registry
from evalfleet.benchmarks.base import Benchmark, Prepares, check_of
from evalfleet.core.readiness import Pull, ReadinessCheck, Update
from evalfleet.errors import EvalfleetError

MARK = "EVALFLEET-HOST "
CLEAN_UP_S = 5.0  # such as a login that must not stay


def prepare(
    benchmark: Benchmark,
    tell: Callable[[ReadinessCheck], None],
    say: Callable[[Update], None],
    secrets: Mapping[str, str],
) -> list[ReadinessCheck]:
    """Make this machine ready for a benchmark as far as it can be; see `Prepares`."""
    if isinstance(benchmark, Prepares):
        return benchmark.prepare(tell, say, secrets)
    checks = _required(benchmark)
    for check in checks:
        tell(check)
    return checks


def recheck(benchmark: Benchmark, restarted: Collection[str]) -> list[ReadinessCheck]:
    """Look quickly whether this machine still is ready; see `Prepares`."""
    return benchmark.recheck(restarted) if isinstance(benchmark, Prepares) else _required(benchmark)


def _required(benchmark: Benchmark) -> list[ReadinessCheck]:
    return [check_of(need) for need in benchmark.requirements()]


def _print(**line: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(MARK + json.dumps(line) + "\n")
        sys.stdout.flush()


def _tell(check: ReadinessCheck) -> None:
    _print(check=check.row())


def _say(update: Update) -> None:
    if isinstance(update, Pull):
        _print(pull=update.row())
    else:
        _print(tell=update)


def _end_with_input() -> None:
    """The reader is gone: end everything that was started, and then this program, which may clean up first."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it is the main thread that it must wake
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(CLEAN_UP_S)
    os.killpg(0, signal.SIGKILL)


def _leave(*_: object) -> None:
    raise SystemExit(1)


def main() -> None:
    with contextlib.suppress(PermissionError):
        os.setpgid(
            0, 0
        )  # so that our end is that of our children, and nobody else's; a session's leader is one already
    signal.signal(signal.SIGTERM, _leave)
    orders: dict[str, Any] = json.loads(sys.stdin.buffer.raw.readline())  # type: ignore[attr-defined] - unbuffered
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        benchmark = registry.find(orders["benchmark"], config.from_controller(orders["settings"]))
        if orders["restarted"] is None:
            prepare(benchmark, _tell, _say, orders["secrets"])
        else:
            for check in recheck(benchmark, orders["restarted"]):
                _tell(check)
    except EvalfleetError as error:
        _print(error=str(error))
        return
    _print(done=True)


if __name__ == "__main__":
    main()
