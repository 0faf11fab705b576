"""The work of a chaos round: tasks that keep a ledger of their own, so that what ran is known without asking evalfleet."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

ATTEMPTS = 12  # more than any round kills of one task, so that every task succeeds in the end
MAX_LOST = 30

# A shell, because it starts in a millisecond. `printf` writes its line at once, and `>>` appends: no line is torn.
PROGRAM = """\
printf 'start %s %s %s\\n' "$1" "$EVALFLEET_ATTEMPT" $$ >> "$4"
echo "working on $1"
case $3 in
    family) sleep 300 & setsid sleep 300 & (setsid sh -c 'sleep 300 & sleep 300' &) ;;
esac
sleep "$2"
printf '{"score": %s, "success": true}' "$5" > "$EVALFLEET_RESULT"
printf '%s' "$1" > "$EVALFLEET_ARTIFACTS/key.txt"
printf 'end %s %s\\n' "$1" "$EVALFLEET_ATTEMPT" >> "$4"
"""


def score_of(number: int) -> float:
    """A score that differs between neighbours, so that a result under the wrong task is seen."""
    return round((number % 97 + 1) / 100, 2)


def write_tasks(folder: Path, count: int, rng: random.Random) -> Path:
    """The task file of one round, with its program and an empty ledger beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.sh").write_text(PROGRAM)
    ledger = folder / "ledger"
    ledger.touch()
    settings = {"attempts": ATTEMPTS, "max_lost": MAX_LOST, "retry_base": 0.05, "retry_cap": 0.3, "timeout": "60s"}
    lines = [json.dumps({"run": settings})]
    for number in range(count):
        key = f"task_{number:03d}"
        seconds = rng.uniform(0.02, 0.12) if rng.random() < 0.7 else rng.uniform(0.1, 0.45)
        kind = "family" if rng.random() < 0.1 else "plain"
        words = ["sh", "task.sh", key, f"{seconds:.3f}", kind, str(ledger), f"{score_of(number)}"]
        lines.append(json.dumps({"key": key, "command": words}))
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@dataclass(slots=True)
class Ledger:
    """What the tasks wrote, read piece by piece."""

    path: Path
    starts: list[tuple[str, str, int]] = field(default_factory=list)  # key, attempt, pid
    ends: list[tuple[str, str]] = field(default_factory=list)  # key, attempt
    _offset: int = 0

    def read(self) -> None:
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode().splitlines():
            match line.split():
                case ["start", key, attempt, pid]:
                    self.starts.append((key, attempt, int(pid)))
                case ["end", key, attempt]:
                    self.ends.append((key, attempt))
                case _:
                    raise AssertionError(f"a torn line in the ledger: {line!r}")

    def live(self) -> list[tuple[str, int]]:
        """Attempts that began and did not end, with their processes. Those that were killed are among them."""
        ended = {attempt for _, attempt in self.ends}
        return [(attempt, pid) for _, attempt, pid in self.starts if attempt not in ended]
