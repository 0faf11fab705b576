"""Run tasks from a script: submit, wait, read the results.

python examples/python_api.py [HOME]
"""

import sys

import evalfleet

# A task is any program. It writes its verdict to the file that EVALFLEET_RESULT names.
GUESS = """
import json, os
task = json.load(open(os.environ["EVALFLEET_TASK"]))
right = task["payload"]["guess"] == 4
json.dump({"score": float(right), "steps": 1, "metrics": {"guess": task["payload"]["guess"]}},
          open(os.environ["EVALFLEET_RESULT"], "w"))
"""


def main(home: str | None = None) -> None:
    tasks = [
        evalfleet.Task(
            key=f"guess_{number}", command=[sys.executable, "-c", GUESS], payload={"guess": number}, timeout="1m"
        )
        for number in (3, 4, 5)
    ]
    tasks.append(evalfleet.Task(key="broken_1", command=["sh", "-c", "echo no luck >&2; exit 1"]))

    run = evalfleet.submit(tasks, name="guesses", workers=2, attempts=1, result="required", home=home)
    print(f"submitted {run.id}; should this process die, `evalfleet resume {run.id}` goes on")

    summary = run.wait()
    print(f"{summary.state}: valid score {summary.scores.valid}, strict {summary.scores.strict}")
    for result in run.results():
        if result.failure:
            print(
                f"{result.key}: {result.failure.kind}, blamed on the {result.failure.blame}: {result.failure.evidence}"
            )
        else:
            print(f"{result.key}: score {result.score}, {result.metrics}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
