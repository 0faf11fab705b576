"""A study file, as it lies on the disk."""

from __future__ import annotations

from pathlib import Path

from evalfleet.errors import InputError
from evalfleet.operations.study_file import require_files, study_in_toml
from evalfleet.tune.study import Study
from evalfleet.validation import quoted


def read_study(file: str, *, parallel: int | None = None, trials: int | None = None) -> tuple[Study, str]:
    """The study, and the folder that its commands start in. What is given goes before what the file says.

    Raises InputError, which names the file, the part and what to do.
    """
    path = Path(file)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no study file {quoted(file)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{quoted(file)} is not TOML: {error}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {quoted(file)}: {getattr(error, 'strerror', None) or error}") from None
    study = study_in_toml(text, quoted(file), parallel=parallel, trials=trials)
    folder = path.absolute().parent
    require_files(study, folder, quoted(file))
    return study, str(folder)


def read_places(text: str | None) -> tuple[int, ...]:
    """The GPUs that `--gpus` names, by index; () for all. Raises InputError."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(
            f"--gpus: {quoted(text)} is no list of indices; write such as 0,1,2,3 (`evalfleet gpus` shows them)"
        )
    return tuple(sorted({int(word) for word in words}))
