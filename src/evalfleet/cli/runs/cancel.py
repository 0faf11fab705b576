"""`evalfleet cancel`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, run_argument


@click.command("cancel")
@run_argument
@json_option
@home_option
def command(run: str, as_json: bool, home: str | None) -> int:
    """End a run: waiting and held tasks are cancelled, running ones are ended.

    Existing verdicts and failures stay. `evalfleet retry --only cancelled` undoes it.
    """
    import anyio

    from evalfleet import config
    from evalfleet.cli.shared.steer import say
    from evalfleet.model import RunState
    from evalfleet.operations.home import opened_for_writing
    from evalfleet.operations.steer import cancel

    settings = config.load(home)
    with opened_for_writing(settings.home, run) as (store, found):
        answer = anyio.run(cancel, settings, store, found)
    words = "cancelled" if answer.state is RunState.CANCELLED else "being cancelled"
    say(as_json, answer, f"run {answer.run} is {words}")
    return 0
