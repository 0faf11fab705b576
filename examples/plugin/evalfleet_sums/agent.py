"""The agent `adder`: reads a sum on the screen and types what it comes to."""

import re

from evalfleet.agents.base import Decision, Observation, Press, TaskPrompt, Write


class Adder:
    title = "adds up what it sees"
    deterministic = True

    def __init__(self, prompt: TaskPrompt) -> None:
        self.goal = prompt.goal

    def act(self, observation: Observation) -> Decision:
        shown = " ".join(element.text for element in observation.elements)
        numbers = [int(number) for number in re.findall(r"\d+", shown)]
        if not numbers:
            return Decision(done=True, note="there is nothing to add")
        answer = str(sum(numbers))
        return Decision(actions=(Write(text=answer), Press(key="Enter")), note=f"{shown} is {answer}")
