"""`evalfleet alerts`."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.answers.alerts import Alert, AlertChannel, AlertList, ChannelTest, ChannelTests
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.config import Settings
from evalfleet.errors import InputError, Refused
from evalfleet.report import text
from evalfleet.report.reader import opened
from evalfleet.report.terminal import events

_SHOWN = 20


@click.command("alerts")
@click.argument("run", required=False, metavar="[RUN|test]")
@click.option(
    "-n", "limit", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="Maximum number to list."
)
@click.option("--firing", is_flag=True, help="Only active alerts.")
@json_option
@home_option
def command(run: str | None, limit: int, firing: bool, as_json: bool, home: str | None) -> int:
    """List alerts, newest first; `evalfleet alerts test` sends a test message to every channel.

    Live controllers and `evalfleet serve` watch the rules and send alerts to the channels under [alerts]; see docs/howto/be-told.md.
    """
    settings = config.load(home)
    if run == "test":
        return _test(settings, as_json=as_json)
    return _list(settings, run, limit, firing=firing, as_json=as_json)


def _test(settings: Settings, *, as_json: bool) -> int:
    from evalfleet.daemon.alerts.channels import ChannelSender, trial

    sender = ChannelSender(settings.alerts)
    if not sender.channels:
        raise InputError("there is no channel; set `webhook` under [alerts] to the name of a variable with its address")
    errors = {name: sender.send(name, trial()) for name in sender.channels}
    if as_json:
        sent = [ChannelTest(channel=name, ok=error is None, error=error) for name, error in errors.items()]
        print_document(ChannelTests(channels=sent))
    else:
        for name, error in errors.items():
            click.echo(f"{name}: {error or 'sent'}")
    return Refused.exit_code if any(errors.values()) else 0


def _list(settings: Settings, run: str | None, limit: int, *, firing: bool, as_json: bool) -> int:
    from evalfleet.daemon.alerts import state as alerts

    rules = alerts.rules(settings.alerts)
    with opened(settings.home) as store:
        found: list[Alert] = []
        if store is not None:
            run_id = store.runs.find(run).id if run else None
            found, _ = alerts.listed(store, run=run_id, state="firing" if firing else None, limit=limit, before=None)
    if as_json:
        channels = [AlertChannel(channel=name) for name in settings.alerts.channels]
        print_document(AlertList(alerts=found, rules=rules, channels=channels))
        return 0
    for alert in found:
        click.echo(_line(alert))
    if not found:
        click.echo("no alerts yet")
    channels = ", ".join(settings.alerts.channels) or "none; see docs/howto/be-told.md"
    on = [rule for rule in rules if rule.enabled]
    click.echo(
        f"\n{len(on)} rules, watched while a run or pool has a controller, or `evalfleet serve` runs; channels: {channels}"
    )
    for rule in on:
        if rule.action != "notify":
            click.echo(f"{rule.rule}: {rule.action}")
    return 0


def _line(alert: Alert) -> str:
    state = "firing" if alert.state == "firing" else "over"
    at = events.clock(alert.fired_at, date=True)
    return f"{at}  {state:<6}  {alert.severity:<8}  {text.printable(alert.message)}"
