"""The Python interface, over the same engine as the command line. See docs/reference/python.md.

::

    import evalfleet

    run = evalfleet.submit([{"key": "a", "command": ["python3", "agent.py"]}], workers=4)
    summary = run.wait()
    for result in run.results():
        print(result.key, result.state, result.score)

Submitting is durable: from then on the run exists, whatever becomes of this process. `RunHandle.wait` drives it; a process
that ends before leaves its running tasks running, and `open_run(id).wait()` or ``evalfleet resume ID`` goes on.

Nothing here installs signal handlers of its own. A handle may be used by several threads.
"""

from __future__ import annotations

from evalfleet.answers.attempts import ArtifactFile as Artifact
from evalfleet.answers.summary import Summary
from evalfleet.answers.task_result import TaskResult
from evalfleet.api.controllers import list_controllers
from evalfleet.api.handle import RunHandle, import_results, list_runs, open_run
from evalfleet.api.studies import StudyHandle, list_studies, open_study, submit_study
from evalfleet.api.submit import submit, submit_benchmark
from evalfleet.api.tasks import RunSettings, Task
from evalfleet.report.live import LiveState
from evalfleet.taskfile.part import Part

__all__ = [
    "Artifact",
    "LiveState",
    "Part",
    "RunHandle",
    "RunSettings",
    "StudyHandle",
    "Summary",
    "Task",
    "TaskResult",
    "import_results",
    "list_controllers",
    "list_runs",
    "list_studies",
    "open_run",
    "open_study",
    "submit",
    "submit_benchmark",
    "submit_study",
]
