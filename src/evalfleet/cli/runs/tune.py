"""`evalfleet tune`."""

from __future__ import annotations

from contextlib import closing

import click

from evalfleet.answers.studies import SubmittedStudy
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import budget_option, home_option, json_option, project_option, tag_option
from evalfleet.cli.shared.output import lasting


@click.command("tune")
@click.argument("file", metavar="STUDY")
@click.option("--parallel", type=click.IntRange(1, 10_000), help="Trials at a time.  [default: the file's, else 1]")
@click.option("--trials", type=click.IntRange(1, 100_000), help="Number of trials.  [default: the file's, else 20]")
@click.option("--gpus", metavar="0,1,…", help="Use only these GPUs of each host, by index.  [default: all]")
@click.option("--resume", "go_on", is_flag=True, help="Continue the newest study of that name, as it was submitted.")
@click.option("--pool", metavar="NAME", help="Use the hosts of this pool.  [default: this machine]")
@click.option("--name", help="Name of the study.  [default: the file's]")
@project_option
@tag_option("Tag of the study, such as model=small")
@budget_option
@click.option("--detach", is_flag=True, help="Submit only; `evalfleet resume` drives it.")
@click.option("-v", "--verbose", is_flag=True, help="Also print claims and progress (plain output only).")
@json_option
@home_option
@lasting
def command(
    file: str,
    parallel: int | None,
    trials: int | None,
    gpus: str | None,
    go_on: bool,
    pool: str | None,
    name: str | None,
    project: str | None,
    tags: dict[str, str],
    budget_usd: float | None,
    detach: bool,
    verbose: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Search for the best parameters of a program: submit a study and drive its trials.

    STUDY is a TOML file with [study], [parameters] and [trial]. A study is a run, so `status`, `watch`, `logs`, `cancel` and
    the others work on it.

    Exit codes: 0 a configuration that keeps all limits was found; 1 none was, or cancelled; 2 bad usage or input; 3 paused;
    130 interrupted, resumable.
    """
    from evalfleet import config
    from evalfleet.cli.studies.shared.drive import drive_study
    from evalfleet.cli.studies.shared.text import plan
    from evalfleet.operations.runs import studies
    from evalfleet.report.text import printable
    from evalfleet.store.open import open_store

    settings = config.load(home)
    study, folder = studies.study_in_file(file, parallel=parallel, trials=trials)
    options = studies.StudyOptions(
        name=name,
        pool=pool,
        budget_usd=budget_usd,
        gpus=studies.gpu_indices(gpus, "--gpus"),
        project=project,
        tags=tags,
    )
    with closing(open_store(settings.home)) as store:
        if go_on:
            found = studies.newest_of_name(store, name or study.name)
            return drive_study(settings, store, found, as_json=as_json, verbose=verbose, parallel=parallel)
        run = studies.submit(settings, store, study, options, folder=folder)
        if detach:
            if as_json:
                print_document(SubmittedStudy(run=run.id, name=run.name, state=run.state, folder=run.folder))
            else:
                click.echo(
                    f"{run.id}\nsubmitted the study {printable(run.name)}; `evalfleet resume {run.id}` drives it"
                )
            return 0
        if not as_json:
            click.echo(f"study {run.id} ({printable(run.name)}): {plan(study)}, {run.policy.workers} at a time")
        return drive_study(settings, store, run, as_json=as_json, verbose=verbose)
