"""An agent of your own: clicks what the goal puts in quotes, and gives up where that is not there.

evalfleet run miniwob --agent patient_agent:Patient --task click-button --task click-link --repeat 3
"""

import re

from evalfleet.agents.base import Click, Decision, Observation, TaskPrompt


class Patient:
    def __init__(self, prompt: TaskPrompt) -> None:
        self.wanted = re.findall(r'"([^"]*)"', prompt.goal)

    def act(self, observation: Observation) -> Decision:
        for element in reversed(observation.elements):
            if element.point and element.text in self.wanted and element.attributes.get("id") != "query":
                click = Click(x=element.point.x, y=element.point.y)
                return Decision(actions=(click,), note=f"the goal names {element.text!r}")
        return Decision(done=True, note="nothing here is named in the goal")
