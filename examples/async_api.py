"""Two runs at the same time in one event loop, with an eye on the first one's events.

python examples/async_api.py [HOME]
"""

import sys

import anyio

import evalfleet


async def show_events(run: evalfleet.RunHandle) -> None:
    """Print what happens to the tasks, as it happens."""
    last, over = 0, False
    while not over:
        over = run.state in ("completed", "cancelled", "paused")
        for event in run.events(after=last):
            last = event.number
            if event.type.startswith("task."):
                print(f"{run.name}: {event.type} {event.task}")
        await anyio.sleep(0.1)


async def main(home: str | None) -> None:
    runs = [
        evalfleet.submit(
            [{"key": f"{name}_{number}", "command": ["sh", "-c", "sleep 0.2"]} for number in range(4)],
            name=name,
            workers=2,
            home=home,
        )
        for name in ("left", "right")
    ]
    async with anyio.create_task_group() as group:
        group.start_soon(show_events, runs[0])
        for run in runs:
            group.start_soon(run.wait_async)
    for run in runs:
        print(f"{run.name}: {run.state}, {sum(result.success is True for result in run.results())} of 4 passed")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
