"""`python -m examples.fake_waa DIR`: a stand-in to try `evalfleet run waa` with, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path

from examples.fake_waa.arena import arena


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m examples.fake_waa DIR    (a new folder)")
    folder = Path(sys.argv[1]).absolute()
    if folder.exists():
        raise SystemExit(f"{folder} is there already; name a new folder")
    with arena(folder, ("stand-in-1", "stand-in-2"), pause_s=0.5) as made, suppress(KeyboardInterrupt):
        (folder / "evalfleet.toml").write_text(made.config(), "utf-8")
        print(f"cd {folder} && OPENAI_API_KEY=any evalfleet run waa --agent navi --model gpt-4o --tasks 6", flush=True)
        print("Ctrl-C ends the stand-in.", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
