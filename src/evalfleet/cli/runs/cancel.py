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

    Verdicts and failures that are there already stay. `evalfleet retry --only cancelled` takes it back.
    """
    import anyio

    from evalfleet import config
    from evalfleet.cli.shared.steer import opened_for_writing, say
    from evalfleet.engine.controller import cancel
    from evalfleet.errors import Refused
    from evalfleet.model import RunState, Verb
    from evalfleet.operations.steer import ask_or_do

    settings = config.load(home)
    with opened_for_writing(settings, run) as (store, found):
        owned, answer = ask_or_do(store, found, Verb.CANCEL, {})
        if owned is not None:
            anyio.run(cancel, settings, store, owned)
        now = store.run(found.id)
        text = f"run {found.id} is {'cancelled' if now.state is RunState.CANCELLED else 'being cancelled'}"
        say(as_json, {"run": found.id, "state": now.state, **answer}, text)
        if now.state is RunState.PAUSED and now.reason:
            raise Refused(f"its running tasks could not be ended: {now.reason['message']}")
    return 0
