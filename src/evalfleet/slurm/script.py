"""The batch job of a machine: its script, the options of sbatch, and its environment. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from evalfleet.pilot.__main__ import BOX as BOX_VARIABLE
from evalfleet.pilot.__main__ import OWN_FOLDER, TERM
from evalfleet.pools.cloud.records import MachineSpec
from evalfleet.slurm import job, size

LOG = "job.log"  # in the machine's box
DEFAULT_PARTITION = "default"  # the cluster's own choice
TERM_S = 5.0  # tasks may end in this time after Slurm's SIGTERM; it kills after KillWait, which is 30 s unless a site says otherwise
_MOST_WARNING_S = 65535.0  # that sbatch takes
# What a job needs of the environment of the machine that submits it.
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "SLURM_CONF")


def batch_script(spec: MachineSpec) -> str:
    """The pilot takes the place of the shell, so that Slurm's signals reach it. It may use the GPUs that Slurm gave the job."""
    assert spec.pilot is not None, "nodes of Slurm are reached through boxes"
    lines = (
        "#!/bin/sh",
        "umask 077",
        f"jobs=${{TMPDIR:-/tmp}}/evalfleet-jobs-$(id -u); {TERM}={TERM_S:g}",
        '[ -d "$jobs" ] || mkdir -p "$jobs"',
        '[ -O "$jobs" ] || { echo "$jobs belongs to another user" >&2; exit 4; }',
        'TMPDIR=$jobs/$SLURM_JOB_ID; mkdir -p "$TMPDIR"',
        f"{OWN_FOLDER}=$TMPDIR; export TMPDIR {OWN_FOLDER} {TERM}",
        'export EVALFLEET_GPUS_GIVEN="${CUDA_VISIBLE_DEVICES:-}"',
        f"exec {spec.pilot.command}",
    )
    return "\n".join(lines) + "\n"


def sbatch_words(spec: MachineSpec, name: str, left_s: float) -> list[str]:
    """The command.

    Args:
        name: of the job. With `singleton` Slurm itself runs one job of this name at a time.
        left_s: until the job must end; it is counted from its start on.
    """
    minutes = max(1, math.ceil(left_s / 60))
    box = box_of(spec)
    labels = {**spec.labels(), job.SIZE: spec.size, job.REGION: spec.region, job.BOX: box}
    words = [
        *("sbatch", "--parsable", f"--job-name={name}", f"--comment={job.comment_of(labels)}"),
        *("--nodes=1", "--ntasks=1", f"--time={minutes}", "--no-requeue", "--dependency=singleton", "--export=ALL"),
        *(f"--output={box}/{LOG}", "--open-mode=append", "--chdir=/", "--input=/dev/null"),
    ]
    if spec.drain_s > 0:
        words.append(f"--signal=B:USR1@{min(_MOST_WARNING_S, math.ceil(spec.drain_s)):.0f}")
    if spec.region != DEFAULT_PARTITION:
        words.append(f"--partition={spec.region}")
    return words + size.sbatch_words(spec.size)


def job_environment(spec: MachineSpec, ours: Mapping[str, str]) -> dict[str, str]:
    """The environment with which sbatch runs, all of which the job gets: few variables, and the pilot's secrets."""
    assert spec.pilot is not None
    return {**{name: ours[name] for name in _PASSED if name in ours}, **spec.pilot.secrets}


def box_of(spec: MachineSpec) -> str:
    assert spec.pilot is not None
    return spec.pilot.secrets.get(BOX_VARIABLE, "/tmp")


def log_path(labels: Mapping[str, str]) -> Path | None:
    box = labels.get(job.BOX)
    return None if not box else Path(box) / LOG
