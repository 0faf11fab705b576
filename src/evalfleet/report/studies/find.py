"""Finding a study by id or name."""

from __future__ import annotations

from evalfleet.errors import NotFound
from evalfleet.model import Run
from evalfleet.report.studies.study import study_in
from evalfleet.store.reader import StoreReader

NO_STUDY = "there is no study yet; `evalfleet tune STUDY.toml` makes one"


def find_study(store: StoreReader, text: str) -> Run:
    """The study that `text` names; of several with one name the newest. Raises NotFound, AmbiguousId, InputError."""
    studies = [run for run in store.runs.newest() if run.policy.study is not None]
    if not studies:
        raise NotFound(NO_STUDY)
    if text == "latest":
        return studies[0]
    found = next((run for run in studies if run.name == text), None) or store.runs.find(text)
    study_in(found)
    return found
