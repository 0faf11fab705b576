"""What the job of one machine asks Slurm for, as text: `cpus=4,mem=16G,gpus=2`. Pure.

The text is the size of a machine, so that pools, offers and the command line treat it as they treat the size of a VM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from evalfleet.errors import InputError
from evalfleet.validation import suggestion

_COUNT = re.compile(r"[1-9][0-9]{0,4}")
_MEMORY = re.compile(r"([1-9][0-9]{0,8})([MGT])B?", re.IGNORECASE)
_GPUS = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*:)?[1-9][0-9]{0,3}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]*")
_FEATURES = re.compile(r"[A-Za-z0-9_.&|*()\[\]!+-]+")
_GRES = re.compile(r"[A-Za-z0-9_.:+/-]+")
_PRICE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_MEGABYTES = {"M": 1, "G": 1 << 10, "T": 1 << 20}
# Each option: what it must look like, for people, and the option of sbatch.
_WORDS: dict[str, tuple[re.Pattern[str], str, Callable[[str], str] | None]] = {
    "cpus": (_COUNT, "a whole number above 0", lambda value: f"--cpus-per-task={value}"),
    "mem": (_MEMORY, "an amount of memory such as 16G", lambda value: f"--mem={value}"),
    "gpus": (_GPUS, "a number of GPUs, or TYPE:NUMBER", lambda value: f"--gres=gpu:{value}"),
    "gres": (
        _GRES,
        "generic resources such as gpu:a100:2, several with + between them",
        lambda value: f"--gres={value.replace('+', ',')}",
    ),
    "account": (_NAME, "the name of an account", lambda value: f"--account={value}"),
    "qos": (_NAME, "the name of a QOS", lambda value: f"--qos={value}"),
    "reservation": (_NAME, "the name of a reservation", lambda value: f"--reservation={value}"),
    "constraint": (_FEATURES, "features of nodes such as a100&nvlink", lambda value: f"--constraint={value}"),
    "exclusive": (re.compile("yes|no"), "yes or no", lambda value: "--exclusive" if value == "yes" else ""),
    "price": (_PRICE, "dollars per hour of a node", None),
}
WORDS = tuple(_WORDS)
DEFAULT = "cpus=1"


def size_of(options: Mapping[str, Any]) -> str:
    """The size that these options of a pool make. Raises InputError."""
    found = {name: _checked(name, _text(options[name])) for name in WORDS if name in options}
    for name in options:
        if name not in _WORDS:
            raise InputError(f"option {name}: is not known{suggestion(name, WORDS)}; slurm takes {', '.join(WORDS)}")
    if "gpus" in found and "gres" in found:
        raise InputError("option gres: say either gpus or gres, not both")
    found.setdefault("cpus", "1")
    return ",".join(f"{name}={found[name]}" for name in WORDS if name in found)


def parts(size: str) -> dict[str, str]:
    """The options that a size is made of. Raises InputError."""
    return {name: _checked(name, value) for name, _, value in (part.partition("=") for part in size.split(","))}


def sbatch_words(size: str) -> list[str]:
    """The options of sbatch."""
    found = [make(value) for name, value in parts(size).items() if (make := _WORDS[name][2]) is not None]
    return [word for word in found if word]


def memory_mb(size: str) -> int | None:
    """The memory of the job; None: Slurm's own choice, which is not known."""
    match = _MEMORY.fullmatch(parts(size).get("mem", ""))
    return None if match is None else int(match[1]) * _MEGABYTES[match[2].upper()]


def price_usd(size: str) -> float:
    """What one of them costs in an hour."""
    return float(parts(size).get("price", "0"))


def _checked(name: str, value: str) -> str:
    if name not in _WORDS:
        raise InputError(f"size: there is no part {name!r}; a size of slurm is made of {', '.join(WORDS)}")
    pattern, wanted, _ = _WORDS[name]
    if not pattern.fullmatch(value):
        raise InputError(f"option {name}: must be {wanted}, not {value!r}")
    return value


def _text(value: Any) -> str:
    """A value from evalfleet.toml may be a number or a truth value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).strip()
