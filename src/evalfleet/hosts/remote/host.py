"""A host that is another machine, as the engine uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from evalfleet.errors import BackendError, RunnerUnavailable
from evalfleet.hosts.base import HostInfo, Inbox, Launch
from evalfleet.hosts.protocol.link import RunnerLink
from evalfleet.hosts.protocol.runner_host import RunnerHost
from evalfleet.hosts.remote.bulk_link import BulkLink
from evalfleet.hosts.remote.collect import Collection, CollectLimits
from evalfleet.hosts.remote.upload import FileSums, HostFiles, UnusableFile
from evalfleet.model import JsonObject


class RemoteHost(RunnerHost):
    """Implements `Host`. Each task starts in its own work folder, with the host's environment and the run's files."""

    def __init__(
        self,
        link: RunnerLink,
        bulk: BulkLink,
        group: TaskGroup,
        inbox: Inbox,
        info: HostInfo,
        run_id: str,
        epoch: int,
        *,
        sums: FileSums,
        caps: CollectLimits,
        python: str | None,
        slots: int,
        claim: JsonObject,
    ) -> None:
        super().__init__(link, inbox, info, run_id, epoch, python=python, slots=slots, claim=claim)
        self._bulk = bulk
        self._group = group
        self._files = HostFiles(bulk)
        self._sums = sums
        self._caps = caps
        self._waiting: set[str] = set()  # attempts whose files are on their way to the host

    async def launch(self, launches: Sequence[Launch]) -> None:
        """See `Host`. Attempts that need files are launched once the host has those files, which may take long and delays no other
        attempt. If the connection ends first, the host does not know them, and the engine launches them again."""
        ready: list[Launch] = []
        for launch in launches:
            if launch.attempt_id in self._waiting:
                continue
            try:
                files = await self._sums.of(launch.files)
            except UnusableFile as error:
                self._end(launch.attempt_id, "launch_failed", str(error), error.errno)
                continue
            adapted = _adapted(launch, {name: digest for name, (digest, _) in files.items()})
            if self._files.has(files):
                ready.append(adapted)
            else:
                try:
                    self._group.start_soon(self._launch_later, adapted, files)
                except RuntimeError as error:  # the connection was closed while the files were looked at
                    raise RunnerUnavailable("the connection to the host is closed") from error
                self._waiting.add(launch.attempt_id)
        await super().launch(ready)

    async def collect(
        self, attempt_id: str, destination: Path, secrets: Mapping[str, str], *, listed_only: bool = False
    ) -> None:  # only listed files are ever copied from a host
        link = await self._bulk.link()
        await Collection(link, attempt_id, destination, self._caps).collect(secrets)

    async def _launch_later(self, launch: Launch, files: Mapping[str, tuple[str, Path]]) -> None:
        since = anyio.current_time()
        try:
            # What the connection or an expired launch costs here, the engine notices when the host does not know the attempt.
            with suppress(BackendError):
                await self._files.upload(files)
                left_s = launch.valid_for_s - (anyio.current_time() - since)
                if left_s > 0:
                    await super().launch([replace(launch, valid_for_s=left_s)])
        except UnusableFile as error:
            self._end(launch.attempt_id, "launch_failed", str(error), error.errno)
        finally:
            self._waiting.discard(launch.attempt_id)


def _adapted(launch: Launch, sums: Mapping[str, str]) -> Launch:
    """Adapt a launch to another machine: without this machine's folder and variables."""
    env = {name: value for name, value in launch.spec["env"].items() if name not in launch.inherited}
    return replace(launch, spec={**launch.spec, "cwd": None, "env": env, "host_env": True, "files": dict(sums)})
