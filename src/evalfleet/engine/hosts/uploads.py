"""Moves collected files from the home to the place that `[files] url` names, for all hosts of a run.

A place that does not answer delays nothing but this: attempts stay `collecting`, with their verdicts stored and their slots free, and
are tried again until it is back. An event says when that begins, and one when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import anyio
import anyio.to_thread

from evalfleet.engine.orders import Ended
from evalfleet.errors import FilesUnreachable
from evalfleet.files.base import AttemptKey
from evalfleet.files.home import HomeFiles
from evalfleet.model import JsonObject, Run
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

_AT_ONCE = 4  # attempts; each sends several files at a time
_FIRST_S, _MOST_S = 1.0, 30.0  # between two tries


class FileUploads:
    def __init__(
        self, store: Store, thread: StoreThread, run: Run, files: HomeFiles, notice: Callable[[str], None]
    ) -> None:
        self._store = store
        self._thread = thread
        self._run = run
        self._folders = files.folders
        self._storage = files.storage
        self._notice = notice
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        self._tries = 0  # that failed, one after the other
        self._asked = False  # whether an earlier controller left it unreachable
        self._next_at = 0.0
        self.problems: dict[str, str] = {}  # attempts whose files stay in the home, and why

    @property
    def is_needed(self) -> bool:
        return self._storage is not None

    @property
    def wait_s(self) -> float:
        """Until the next try."""
        return max(0.0, self._next_at - anyio.current_time())

    def is_here(self, one: Ended) -> bool:
        """Whether its files are in the home, and only wait to be moved."""
        return self._storage is not None and self._folders.folder(self._key(one)).is_dir()

    async def move(self, batch: Sequence[Ended]) -> list[Ended]:
        """Put the files of these attempts into the place. Returns those that are done, with or without files.

        What is done still lies in the home, until `drop`.
        """
        if self._storage is None:
            return list(batch)
        if self.wait_s:
            return []
        done: list[Ended] = []
        failed: list[FilesUnreachable] = []
        async with anyio.create_task_group() as group:
            for one in batch:
                group.start_soon(self._put, one, done, failed)
        await self._tell(failed)
        return done

    async def drop(self, batch: Sequence[Ended]) -> None:
        """Remove what was moved from the home."""
        if self._storage is not None and batch:
            keys = [self._key(one) for one in batch if one.attempt.id not in self.problems]
            await anyio.to_thread.run_sync(self._drop, keys)

    def _drop(self, keys: Sequence[AttemptKey]) -> None:
        for key in keys:
            try:
                self._folders.delete(key)
            except OSError as error:
                self._notice(f"the files of {key.path} are stored, and could not be removed from the home: {error}")

    async def _put(self, one: Ended, done: list[Ended], failed: list[FilesUnreachable]) -> None:
        if self._storage is None:
            return
        key = self._key(one)
        put = partial(self._storage.put, key, self._folders.folder(key))
        try:
            left_out = await anyio.to_thread.run_sync(put, limiter=self._limiter)
            if left_out:
                self.problems[one.attempt.id] = f"{left_out} of its files cannot be read, and stay in the home"
        except FilesUnreachable as error:
            failed.append(error)
            return
        except FileNotFoundError:
            pass  # there was nothing to collect
        except OSError as error:
            self.problems[one.attempt.id] = f"its files stay in the home: {error}"
        done.append(one)

    async def _tell(self, failed: Sequence[FilesUnreachable]) -> None:
        if failed:
            self._next_at = anyio.current_time() + min(_FIRST_S * 2**self._tries, _MOST_S)
            self._tries += 1
            if self._tries == 1:
                await self._unreachable(str(failed[0]))
                self._notice(f"files cannot be stored, and are tried again; verdicts are not affected: {failed[0]}")
        elif self._tries or not self._asked:
            if self._tries or await self._thread.call(self._was_unreachable):
                await self._thread.call(self._store.events.note, self._run.id, "files.reached", {})
                self._notice("files are stored again")
            self._tries, self._next_at, self._asked = 0, 0.0, True

    def _was_unreachable(self) -> bool:
        events, run = self._store.events, self._run.id
        failed, reached = events.last(run, "files.unreachable"), events.last(run, "files.reached")
        return failed is not None and (reached is None or reached.number < failed.number)

    async def _unreachable(self, error: str) -> None:
        data: JsonObject = {"error": error}
        await self._thread.call(self._store.events.note, self._run.id, "files.unreachable", data)

    def _key(self, one: Ended) -> AttemptKey:
        return AttemptKey.of(self._run.id, one.key, one.attempt.number)
