"""Watches the runner: which attempts run, which have ended; uploads the ended ones, and passes on preemption notices."""

from __future__ import annotations

import threading

from .runner_process import PROTOCOL, RunnerClient, RunnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .runner_process import RunnerProcess
    from .uploads import AttemptUpload

LOOK_S = 0.3
LONGEST_PAUSE_S = 10.0


class RunnerWatch:
    """Two threads: one looks, one uploads, so that a large upload delays no notice."""

    def __init__(self, runner: RunnerProcess, uploads: AttemptUpload, log: Callable[[str], None]) -> None:
        self.live = 0  # attempts that run
        self.notice: str | None = None  # why the node is taken away
        self._runner = runner
        self._uploads = uploads
        self._log = log
        self._lock = threading.Lock()
        self._ended: dict[str, dict[str, Any]] = {}
        self._uploaded: set[str] = set()
        self._is_told = False  # the runner knows the notice, and was looked at since
        self._over = threading.Event()
        self._changed = threading.Event()
        self._looking = threading.Thread(target=self._look_forever, daemon=True)
        self._uploading = threading.Thread(target=self._upload_forever, daemon=True)

    @property
    def waiting(self) -> int:
        """Ended attempts that are not uploaded yet."""
        with self._lock:
            return len(self._ended.keys() - self._uploaded)

    @property
    def is_drained(self) -> bool:
        """Whether a node that is taken away has nothing left to do."""
        return self._is_told and not self.live and not self.waiting

    def start(self) -> None:
        self._looking.start()
        self._uploading.start()

    def finish(self, limit_s: float) -> None:
        """Look and upload once more, then end the runner."""
        self._over.set()
        self._looking.join(limit_s)
        self._changed.set()
        self._uploading.join(limit_s)
        try:
            client = RunnerClient(self._runner.connect())
            try:
                client.request("shutdown")
            finally:
                client.close()
        except OSError as error:
            self._log("the runner did not end: %s" % error)

    def _look_forever(self) -> None:
        client: RunnerClient | None = None
        told: str | None = None
        pause_s = LOOK_S
        while True:
            over = self._over.is_set()
            try:
                if client is None:
                    client, told = RunnerClient(self._runner.connect()), None
                if self.notice is not None and told is None:
                    client.request("preempt", message=self.notice)
                    told = self.notice
                self._take(client.request("hello", protocol=PROTOCOL)["attempts"])
                self._is_told = told is not None
                pause_s = LOOK_S
            except RunnerError as error:
                self._log(str(error))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except OSError as error:  # it died, and is started again
                self._log("the runner does not answer: %s" % error)
                if client is not None:
                    client.close()
                client = None
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if over:
                break
            self._over.wait(pause_s)
        if client is not None:
            client.close()

    def _take(self, attempts: list[dict[str, Any]]) -> None:
        with self._lock:
            self._ended = {str(one["attempt"]): one for one in attempts if one["state"] == "ended"}
            if self._ended.keys() ^ self._uploaded:
                self._changed.set()
        self.live = sum(one["state"] == "running" for one in attempts)

    def _upload_forever(self) -> None:
        pause_s = LOOK_S
        while True:
            over = self._over.is_set() and not self._looking.is_alive()
            self._changed.clear()
            pause_s = LOOK_S if self._upload_all() else min(2 * pause_s, LONGEST_PAUSE_S)
            if over:
                return
            if pause_s > LOOK_S:
                self._over.wait(pause_s)
            else:
                self._changed.wait(LONGEST_PAUSE_S)

    def _upload_all(self) -> bool:
        """Upload what has ended, and drop what the controller has stored. False if something is left to do."""
        with self._lock:
            due = [one for name, one in sorted(self._ended.items()) if name not in self._uploaded]
            gone = sorted(self._uploaded - self._ended.keys())
        done = [self._quietly(self._upload, one) for one in due]
        if gone:
            done.append(self._quietly(self._uploads.drop, gone))
            with self._lock:
                self._uploaded.difference_update(gone if done[-1] else ())
        return all(done)

    def _upload(self, attempt: dict[str, Any]) -> None:
        client = RunnerClient(self._runner.connect())
        try:
            self._uploads.put(client, attempt)
        finally:
            client.close()
        with self._lock:
            self._uploaded.add(str(attempt["attempt"]))

    def _quietly(self, call: Callable[[Any], None], argument: Any) -> bool:
        try:
            call(argument)
        except OSError as error:
            self._log("upload: %s" % error)
            return False
        return True
