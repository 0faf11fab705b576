"""Slurm's programs, called with a time limit, and what their errors mean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

import anyio

from evalfleet import config
from evalfleet.core.failures.kinds import one_line
from evalfleet.pools.cloud.problems import ACTIONS, Action, Cause, Problem, Refusal

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")
CONFS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
LIMIT_S = 40.0  # the programs themselves try for 10 to 30 s to reach a controller
OUTAGE_WAIT_S = 2.0
FULL_S = 60.0  # after it, a job that a limit on submitted jobs refused is asked for again
# What makes the programs act or print otherwise than we ask, and what a controller that is itself a job has from Slurm.
_CHANGES = re.compile(r"(SBATCH|SQUEUE|SCANCEL|SCONTROL|SLURM)_\w+")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_OUTAGE = re.compile(
    r"unable to contact slurm controller|socket timed out|connection (refused|timed out|reset)|zero bytes were transmitted"
    r"|standby mode|unable to establish|communication connection failure|resource temporarily unavailable"
    r"|munge encode failed|slurm_load_jobs error: unexpected|transport endpoint|try again later|slurmctld is (starting|shutting)",
    re.IGNORECASE,
)
_UNKNOWN_JOB = re.compile(
    r"invalid job id|job/step already (completing or )?completed|has already finished", re.IGNORECASE
)
_FULL = re.compile(r"job submit limit|MaxSubmitJob|AssocMaxSubmit|QOSMaxSubmit", re.IGNORECASE)
_PREFIX = re.compile(r"^\w+: (error: )?(Batch job submission failed: )?")


def is_installed() -> bool:
    """Whether Slurm's programs are here, and know of a cluster."""
    environ = config.environment()
    if not all(shutil.which(name, path=environ.get("PATH")) for name in PROGRAMS):
        return False
    conf = environ.get("SLURM_CONF")
    if conf:
        return os.path.exists(conf)
    return "SLURM_CONF_SERVER" in environ or any(os.path.exists(path) for path in CONFS)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, without what would change how Slurm's programs act."""
    ours = {
        name: value for name, value in config.environment().items() if name in _KEPT or not _CHANGES.fullmatch(name)
    }
    return {**ours, **(more or {})}


async def run(*words: str, given: str = "", env: Mapping[str, str] | None = None) -> str:
    """What the program prints. Raises Refusal.

    Args:
        given: its standard input.
        env: its whole environment; None: `environment()`.
    """
    environ = environment() if env is None else dict(env)
    try:
        with anyio.fail_after(LIMIT_S):
            done = await anyio.run_process(
                words, input=given.encode(), stderr=subprocess.PIPE, check=False, env=environ
            )
    except TimeoutError:
        raise Refusal(outage(f"{words[0]} gave no answer within {LIMIT_S:.0f} s")) from None
    except OSError as error:
        said = f"{words[0]} cannot be started: {error.strerror}; run evalfleet where Slurm's programs are"
        raise Refusal(Problem(cause=Cause.REQUEST, action=Action.GIVE_UP, message=said)) from error
    if done.returncode != 0:
        raise Refusal(judged(words[0], done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace")


def judged(program: str, stderr: str) -> Problem:
    """What an error of one of the programs means. Pure."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = one_line("; ".join(dict.fromkeys(_PREFIX.sub("", line) for line in lines)) or "no reason is given")
    if _OUTAGE.search(stderr):
        return outage(told)
    if _UNKNOWN_JOB.search(stderr):
        return Problem(cause=Cause.NOT_FOUND, action=ACTIONS[Cause.NOT_FOUND], message=f"{program}: {told}")
    if _FULL.search(stderr):
        said = f"Slurm takes no more jobs of this user or account now: {told}"
        return Problem(cause=Cause.CAPACITY, action=Action.NEXT_REGION, message=said, avoid_s=FULL_S)
    return Problem(cause=Cause.REQUEST, action=Action.GIVE_UP, message=f"Slurm refuses ({program}): {told}")


def outage(told: str) -> Problem:
    """The controller is away: nothing is known of any job, and nothing is concluded."""
    said = f"Slurm's controller (slurmctld) does not answer: {told}"
    return Problem(cause=Cause.SERVER, action=Action.WAIT, message=said, wait_s=OUTAGE_WAIT_S)
