"""`evalfleet prepare`."""

from __future__ import annotations

from typing import Any

import click

from evalfleet.cli.options import home_option, json_option

NOT_READY = 3


@click.command("prepare")
@click.argument("benchmark", required=False, default="waa", type=click.Choice(["waa"]), metavar="[BENCHMARK]")
@json_option
@home_option
def command(benchmark: str, as_json: bool, home: str | None) -> int:
    """Make this machine ready for a benchmark, rung by rung, and say which rung does not hold.

    For waa: Docker answers; KVM is usable; the image is there; each container runs, and is started if it does not;
    Windows answers in it. Exit codes: 0 ready; 3 a rung does not hold.
    """
    from evalfleet import config
    from evalfleet.benchmarks.waa.ladder import Rung, prepare

    def tell(rung: Rung) -> None:
        if not as_json:
            of = f" {rung.of}" if rung.of else ""
            click.echo(f"{'+' if rung.holds else '-'} {rung.name}{of}: {rung.seen} ({rung.took_s:.1f} s)")
            if not rung.holds:
                click.echo(f"    {rung.remedy}")

    rungs = prepare(config.load(home).waa, tell)
    ready = all(rung.holds for rung in rungs)
    if as_json:
        import json

        click.echo(json.dumps({"benchmark": benchmark, "ready": ready, "rungs": [_row(rung) for rung in rungs]}))
    else:
        click.echo(f"{benchmark} is ready" if ready else f"{benchmark} is not ready")
    return 0 if ready else NOT_READY


def _row(rung: Any) -> dict[str, Any]:
    return {
        "rung": rung.name,
        "container": rung.of,
        "holds": rung.holds,
        "seen": rung.seen,
        "remedy": rung.remedy or None,
        "took_s": rung.took_s,
    }
