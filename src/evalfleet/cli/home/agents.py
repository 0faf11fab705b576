"""`evalfleet agents`."""

from __future__ import annotations

import click

from evalfleet.answers.home import AgentList, AgentRow, Need
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("agents")
@click.argument("name", required=False)
@json_option
@home_option
def command(name: str | None, as_json: bool, home: str | None) -> None:
    """Show the agents, or what one of them needs.

    NAME may also be one of your own, as module:Class.
    """
    import os

    from evalfleet import config
    from evalfleet.agents import registry

    config.load(home)  # a broken configuration is told here as everywhere
    if name is not None:
        told = _whole(name, os.getcwd())
        print_document(told) if as_json else click.echo(_page(told))
        return
    rows = [_row(each) for each in registry.names()]
    if as_json:
        print_document(AgentList(agents=rows))
        return
    for row in rows:
        state = "broken" if row.broken else "ready" if row.ready else "not ready"
        click.echo(f"{row.name:<12} {state:<10} {row.broken or row.title}")
    click.echo("or your own as module:Class or cmd:COMMAND; `evalfleet run BENCHMARK --agent NAME` uses one")


def _row(name: str) -> AgentRow:
    try:
        return _whole(name, None)
    except Exception as error:  # noqa: BLE001 - another package's code; the others are shown all the same
        said = " ".join(str(error).split())
        return AgentRow(name=name, title="", ready=False, broken=said or type(error).__name__)


def _whole(name: str, folder: str | None) -> AgentRow:
    from importlib.util import find_spec

    from evalfleet import config
    from evalfleet.agents import registry

    said = registry.declared(registry.load(name, folder=folder))
    modules = tuple(
        Need(what=module, present=find_spec(module) is not None, install=install)
        for module, install in said.modules.items()
    )
    secrets = tuple(Need(what=each, present=bool(config.environment().get(each))) for each in said.secrets)
    return AgentRow(
        name=name,
        title=said.title,
        ready=all(need.present for need in (*modules, *secrets)),
        deterministic=said.deterministic,
        options=tuple(f"--{option.replace('_', '-')}" for option in said.accepts),
        secrets=secrets,
        modules=modules,
    )


def _page(told: AgentRow) -> str:
    lines = [f"{told.name}: {told.title}"]
    if told.options:
        lines.append(f"takes {', '.join(told.options)}")
    for need in told.secrets:
        mark, state = ("+", "is set") if need.present else ("-", f"is not set; export {need.what}=…")
        lines.append(f"  {mark} the secret {need.what} {state}")
    for need in told.modules:
        state = "is there" if need.present else f"is missing; install it with: {need.install}"
        lines.append(f"  {'+' if need.present else '-'} the module {need.what} {state}")
    return "\n".join(lines)
