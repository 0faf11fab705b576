"""A wrong clock for all programs of one machine: a small library, made by the C compiler where there is one.

Without a compiler only `date` shows the wrong time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from importlib import resources
from pathlib import Path

FOLDER = Path("etc", "evalfleet")


async def install(base: Path, skew_s: float) -> Path | None:
    """Make the library below `base`. Returns its path; None where the machine's programs do not have it."""
    compiler = shutil.which("cc")
    if not skew_s or compiler is None:
        return None
    name = FOLDER / f"clock{round(skew_s):+d}.so"
    library, partial = base / name, base / name.with_suffix(".partial")
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        source = resources.files("evalfleet.emulator") / "programs" / "clock.c"
        process = await asyncio.create_subprocess_exec(
            *(compiler, "-shared", "-fPIC", "-O1", f"-DSKEW={round(skew_s)}", f'-DSELF="{library}"'),
            *("-o", str(partial), str(source), "-ldl"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        if await process.wait():
            return None
        os.replace(partial, library)
    return library
