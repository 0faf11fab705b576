"""The Slurm cluster of this shell as pools see it: a machine is a job that holds a pilot.

What `Cloud` promises holds here, too. What Slurm's controller does not say is not concluded: while it is away, every method raises
Refusal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from evalfleet import config
from evalfleet.core.failures.kinds import one_line
from evalfleet.pools.cloud import records
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    LABEL_POOL,
    Creation,
    Kind,
    MachineSpec,
    MachineView,
    Offering,
    Progress,
    Resource,
    Verb,
)
from evalfleet.slurm import job, programs, script, size
from evalfleet.slurm.job import Job

SHORT_ID = 8  # letters of a home's id in the names of its jobs
SAME_S = 150.0  # how exactly an end is kept: Slurm counts whole minutes, from the start of the job on
_LOG = "job"
_LAST_CHARS = 2000


class SlurmCloud:
    """Implements `Cloud` and `KeepsLogs`. Jobs of other users are never seen, and those of other homes never touched by name."""

    def __init__(self, homes: Sequence[str], poll_s: float) -> None:
        """
        Args:
            homes: the id of this home, then those of the homes whose place it took.
        """
        self._homes = tuple(each[:SHORT_ID] for each in homes)
        self._poll_s = poll_s
        self._lock = anyio.Lock()
        self._jobs: list[Job] = []
        self._asked_at = float("-inf")
        # By name: the last job of which we know that it is over. squeue goes on showing it for some minutes, and those before it.
        self._ended: dict[str, int] = {}

    @property
    def poll_s(self) -> float:
        return self._poll_s

    # Machines

    async def list(self, pool: str | None = None) -> list[MachineView]:
        """Of one pool only those of this home: another home's pool of that name is another pool."""
        jobs = await self._seen()
        await self._cancel_doubles(jobs)
        if pool is None:
            return [self._view(one, self._machine(one) or one.name) for one in jobs if one.is_live]
        mine = {self._machine(one) for one in jobs if one.labels.get(LABEL_POOL) == pool} - {None}
        found = [(name, _chosen(jobs, self._names(name))) for name in sorted(filter(None, mine))]
        return [self._view(one, name) for name, one in found if one is not None]

    async def view(self, name: str) -> MachineView | None:
        found = await self._find(name)
        return None if found is None else self._view(found, name)

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        """Its time limit is its deadline. Slurm itself runs one job of a name at a time, so that a request that was thought lost,
        and was not, does no harm: its job waits, and is cancelled as a double."""
        found = await self._find(spec.name)
        if found is not None and found.is_live:
            return Creation(continuation=None)
        words = script.sbatch_words(spec, self._names(spec.name)[0], stops_at - time.time())
        env = script.job_environment(spec, config.environment())
        said = await programs.run(*words, given=script.batch_script(spec), env=env)
        number = said.strip().partition(";")[0]
        if not number.isdecimal():
            raise Refusal(programs.judged("sbatch", f"sbatch printed {said!r}, which is no job id"))
        return Creation(continuation=number)

    async def start(self, name: str) -> str:
        raise await self._not_kept(name)

    async def stop(self, name: str) -> str:
        raise await self._not_kept(name)

    async def _not_kept(self, name: str) -> Refusal:
        is_there = await self._find(name) is not None
        said = f"{name} is a job, which cannot be stopped and started; delete it" if is_there else f"there is no {name}"
        cause = Cause.REQUEST if is_there else Cause.NOT_FOUND
        return Refusal(Problem(cause=cause, action=Action.GIVE_UP, message=said))

    async def delete(self, name: str) -> str | None:
        found = await self._find(name)
        if found is None:
            return None
        if found.is_over:
            self._note_end(found)
            return None
        if found.is_live:
            await self._cancel([found])
        return str(found.id)

    async def poll(self, verb: Verb, name: str, continuation: str, offering: Offering | None = None) -> Progress:
        """The continuation is the number of the job."""
        found = next((one for one in await self._seen(ended=True) if str(one.id) == continuation), None)
        if verb is Verb.DELETE:
            if found is None or found.is_over:
                if found is not None:
                    self._note_end(found)
                return Progress(done=True)
            if found.is_live:  # the order was lost
                await self._cancel([found])
            return Progress(done=False, look_again_s=self.poll_s)
        if found is None:
            return Progress(done=True, forgotten=True)
        if found.end is not None:
            return Progress(done=True, problem=await self._explained(found))
        if found.hopeless is not None:
            return Progress(done=True, problem=found.hopeless)
        return Progress(done=found.waits is None, look_again_s=self.poll_s, waits=found.waits)

    async def endpoint(self, name: str) -> records.Endpoint | None:
        return None  # it is reached through its box

    # What squeue shows

    async def _seen(self, *, ended: bool = False) -> list[Job]:
        """Our jobs, as they were at this moment or later: one squeue answers all who ask meanwhile.

        Args:
            ended: also those that are over and of which notice was taken.
        """
        asked_at = anyio.current_time()
        async with self._lock:
            if self._asked_at < asked_at:
                await anyio.sleep(max(0.0, self._asked_at + self.poll_s / 2 - anyio.current_time()))
                began_at = anyio.current_time()
                words = ("squeue", "--noheader", "--states=all", f"--user={os.getuid()}", f"--format={job.FORMAT}")
                self._jobs = job.jobs_of(await programs.run(*words))
                self._asked_at = began_at
        return [one for one in self._jobs if ended or not (one.is_over and one.id <= self._ended.get(one.name, 0))]

    def _note_end(self, found: Job) -> None:
        self._ended[found.name] = max(found.id, self._ended.get(found.name, 0))

    async def _find(self, name: str) -> Job | None:
        return _chosen(await self._seen(), self._names(name))

    def _names(self, name: str) -> tuple[str, ...]:
        """What the job of a machine may be called: a name with a dot is a job's own, as `resources` gives it."""
        return (name,) if "." in name else tuple(f"{name}.{home}" for home in self._homes)

    def _machine(self, found: Job) -> str | None:
        """The name of the machine; None for those of other homes."""
        name, _, home = found.name.rpartition(".")
        return name if name and home in self._homes else None

    def _view(self, found: Job, name: str) -> MachineView:
        return found.view(name, time.time())

    async def _cancel_doubles(self, jobs: Sequence[Job]) -> None:
        """Cancel what a controller that died has asked for, and another one asked for again."""
        first: dict[tuple[str, str, str], int] = {}
        for one in sorted(jobs, key=lambda each: each.id):
            if one.is_live and self._machine(one) is not None and first.setdefault(one.whose, one.id) != one.id:
                await self._cancel([one])

    async def _cancel(self, jobs: Sequence[Job]) -> None:
        try:
            await programs.run("scancel", *(str(one.id) for one in jobs))
        except Refusal as error:
            if error.problem.cause is not Cause.NOT_FOUND:  # else it has ended a moment ago
                raise

    async def _explained(self, found: Job) -> Problem:
        """Why a job ended before its pilot spoke, with the last line of its output."""
        assert found.end is not None
        lines = (await self._output(found, _LAST_CHARS)).strip().splitlines()
        said = f"{found.end.message}; its output ends with {one_line(lines[-1])!r}" if lines else found.end.message
        return Problem(cause=Cause.START, action=Action.WAIT, message=said, wait_s=self.poll_s)

    # Logs

    async def log(self, name: str) -> str:
        return ""

    async def logs(self, name: str) -> Sequence[str]:
        return (_LOG,) if await self.read_log(name, _LOG, 1) else ()

    async def read_log(self, name: str, log: str, limit: int) -> str:
        found = await self._find(name)
        return "" if found is None or log != _LOG or limit <= 0 else await self._output(found, limit)

    async def _output(self, found: Job, limit: int) -> str:
        path = script.log_path(found.labels)
        return "" if path is None else await anyio.to_thread.run_sync(_end_of, path, limit)

    # Deadlines

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        if not await self.has_deadline(name, at):
            said = f"{name} is a job, whose time limit is fixed when it is submitted"
            raise Refusal(Problem(cause=Cause.REQUEST, action=Action.GIVE_UP, message=said))

    async def has_deadline(self, name: str, at: float) -> bool:
        found = await self._find(name)
        return found is not None and found.left_s is not None and abs(time.time() + found.left_s - at) < SAME_S

    async def drop_deadline(self, name: str) -> None:
        pass  # it went with the job

    async def extend(self, view: MachineView, expires_at: float) -> None:
        found = await self._find(view.name)
        if found is not None and found.is_live:
            moved = {**found.labels, LABEL_EXPIRES: records.expires_text(expires_at)}
            await programs.run("scontrol", "update", f"JobId={found.id}", f"Comment={job.comment_of(moved)}")

    # What is around machines

    async def resources(self, pool: str | None = None) -> list[Resource]:
        jobs = [one for one in await self._seen() if not one.is_over and pool in (None, one.labels.get(LABEL_POOL))]
        return [self._resource(one) for one in jobs]

    def _resource(self, found: Job) -> Resource:
        name = self._machine(found) or found.name
        view = self._view(found, name)
        return Resource(
            id=str(found.id),
            name=name,
            kind=Kind.MACHINE,
            type="Slurm job",
            region=view.region,
            labels=view.labels,
            machine=name,
        )

    async def delete_resource(self, resource: Resource) -> None:
        pass  # a job is a machine, and has nothing beside it

    async def prepare_region(self, pool: str, region: str, owner: str) -> None:
        pass

    async def clean_region(self, pool: str, region: str) -> None:
        pass

    async def image(self, name: str) -> str | None:
        return None

    # Money

    def price(self, offering: Offering, disk_gb: int) -> records.Price:
        return records.Price(usd_per_hour=size.price_usd(offering.size), kept_usd_per_hour=0.0)

    async def quota(self, offering: Offering) -> records.Quota | None:
        return None


def _chosen(jobs: Sequence[Job], names: Sequence[str]) -> Job | None:
    """The job of a machine: the first live one, else the last of all."""
    known = sorted((one for one in jobs if one.name in names), key=lambda each: each.id)
    live = [one for one in known if one.is_live]
    return live[0] if live else known[-1] if known else None


def _end_of(path: Path, limit: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * limit))
            return file.read().decode("utf-8", "replace")[-limit:]
    except OSError:
        return ""  # its box is gone
