"""One episode of a MiniWoB++ page in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalfleet.agents.base import Action, Box, Element, Observation, Point
from evalfleet.environments.base import Size
from evalfleet.environments.browser.page import Page
from evalfleet.model import Verdict

WINDOW = Size(width=500, height=320)
SHOWN = Size(width=160, height=210)  # the task itself; reward and clock stand to the right of it

# The page's clock would end the episode after 10 seconds: time is the run's to limit. Once over, an episode must not
# be covered by the page's START button, which would begin another one.
_START = """(() => {
  Math.seedrandom(%d);
  core.EPISODE_MAX_TIME = 24 * 3600 * 1000;
  core.startEpisodeReal();
  core.startEpisode = () => {};
  const said = core.getUtterance();
  return typeof said === 'string' ? said : said.utterance;
})()"""

_VERDICT = "[WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL, WOB_REWARD_REASON]"

# At rest: no jQuery animation runs (some never end; those are given a second), and what changed has been drawn.
_REST = """new Promise(rested => {
  const until = performance.now() + 1000;
  const look = () => {
    if (window.jQuery && jQuery.timers && jQuery.timers.length && performance.now() < until) setTimeout(look, 10);
    else requestAnimationFrame(() => requestAnimationFrame(() => rested(true)));
  };
  look();
})"""

_ELEMENTS = """(() => {
  const hidden = new Set(['reward-display', 'click-canvas', 'sync-task-cover']);
  const skipped = new Set(['SCRIPT', 'STYLE', 'BR', 'TEMPLATE']);
  const found = [], places = new Map();
  const hit = (element, x, y) => {
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return false;
    const there = document.elementFromPoint(x, y);
    return there !== null && element.contains(there);
  };
  const point = (element, box) => {
    if (!box.width || !box.height) return null;
    for (const part of element.getClientRects()) {
      const x = part.x + part.width / 2, y = part.y + part.height / 2;
      if (hit(element, x, y)) return [x, y];
    }
    for (let row = 1; row < 10; row++) for (let column = 1; column < 10; column++) {
      const x = box.x + box.width * column / 10, y = box.y + box.height * row / 10;
      if (hit(element, x, y)) return [x, y];
    }
    return null;
  };
  const visit = (element, parent) => {
    if (hidden.has(element.id) || skipped.has(element.tagName)) return;
    const box = element.getBoundingClientRect(), attributes = {};
    for (const each of element.attributes) attributes[each.name] = each.value.slice(0, 300);
    const index = found.length;
    found.push([parent, element.tagName.toLowerCase(), element.textContent.replace(/\\s+/g, ' ').trim().slice(0, 500),
      'value' in element && element.tagName !== 'LI' ? String(element.value) : null,
      'checked' in element ? element.checked : element.tagName === 'OPTION' ? element.selected : null,
      element === document.activeElement,
      [box.x, box.y, box.width, box.height], point(element, box), attributes]);
    for (const child of element.children) visit(child, index);
  };
  for (const child of document.body.children) visit(child, null);
  return found;
})()"""


class PageEpisode:
    """Implements `Episode`."""

    def __init__(self, page: Page, path: Path, seed: int) -> None:
        self._page = page
        page.open(path.as_uri())
        self.goal: str = page.evaluate(_START % seed)

    def observe(self, step: int) -> Observation:
        self._page.evaluate(_REST)
        rows: list[list[Any]] = self._page.evaluate(_ELEMENTS)
        return Observation(
            step=step,
            goal=self.goal,
            screenshot=self._page.screenshot(SHOWN),
            width=SHOWN.width,
            height=SHOWN.height,
            elements=tuple(_element(index, row) for index, row in enumerate(rows)),
        )

    def perform(self, action: Action) -> None:
        self._page.perform(action)

    def verdict(self) -> Verdict | None:
        """The reward is from -1 to 1; the score leaves out its punishing half."""
        over, reward, reason = self._page.evaluate(_VERDICT)
        if not over:
            return None
        score = min(1.0, max(0.0, round(float(reward), 6)))
        metrics: dict[str, Any] = {"reward": reward, **({"reason": reason} if reason else {})}
        return Verdict(score=score, success=score == 1.0, metrics=metrics)

    def finish(self) -> Verdict | None:
        return self.verdict()


def _element(index: int, row: list[Any]) -> Element:
    parent, tag, text, value, checked, focused, box, point, attributes = row
    return Element(
        index=index,
        parent=parent,
        tag=tag,
        text=text,
        value=value,
        checked=checked,
        focused=focused,
        box=Box(x=box[0], y=box[1], width=box[2], height=box[3]),
        point=Point(x=point[0], y=point[1]) if point else None,
        attributes=attributes,
    )
