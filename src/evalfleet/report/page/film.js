"use strict";
// Film strips: what an attempt did, step by step. Text is set as text, pictures come from data in the page.
const film = (() => {
  let loaded = null; // parsed when the first strip is opened: it may be large
  const load = () => (loaded ??= JSON.parse(document.getElementById("films").textContent));
  const element = (name, className, content) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (content !== undefined && content !== null) made.textContent = content;
    return made;
  };
  const address = (base, name) =>
    base && name && !name.split("/").includes("..") ? base + name.split("/").map(encodeURIComponent).join("/") : null;
  const facts = ([, at, , , tokens, cost]) =>
    [at === null ? "" : `at ${at.toFixed(1)}s`, tokens && `${tokens} tokens`, cost ? "$" + cost.toFixed(4) : ""].filter(Boolean).join(" · ");
  const title = ([step]) => (step === null ? "" : `Step ${step}`);

  // Pictures get their data when they come into view.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        entry.target.src = load().pictures[Number(entry.target.dataset.picture)];
        watcher.unobserve(entry.target);
      }
    }
  }, { rootMargin: "400px" });

  const picture = (row, base, lazy) => {
    const [, , action, note, , , number, name, points] = row;
    const box = element("span", "shot");
    if (number === null) {
      const link = address(base, name);
      const missing = box.appendChild(element(link ? "a" : "span", "missing", name ? `${name} is not in this page` : "no screenshot"));
      if (link) missing.href = link;
      return box;
    }
    const image = box.appendChild(element("img"));
    image.alt = [title(row), action, note].filter(Boolean).join(": ");
    image.draggable = false;
    image.addEventListener("load", () => {
      // Enlarged up to three times, and never larger than the window.
      if (!lazy) box.style.width = `min(100% - 28px, ${image.naturalWidth * 3}px, ${(62 * image.naturalWidth) / image.naturalHeight}vh)`;
      for (const [x, y] of points) {
        const mark = element("i", "point");
        mark.style.left = `${(x / image.naturalWidth) * 100}%`;
        mark.style.top = `${(y / image.naturalHeight) * 100}%`;
        box.append(mark);
      }
    }, { once: true });
    if (lazy) {
      image.dataset.picture = number;
      watcher.observe(image);
    } else {
      image.src = load().pictures[number];
    }
    return box;
  };

  const viewer = document.body.appendChild(element("dialog", "viewer"));
  let shown = null; // {rows, base, at, name}
  viewer.tabIndex = -1;
  const draw = () => {
    const focused = viewer.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    const { rows, base, at, name } = shown;
    const row = rows[at];
    viewer.replaceChildren();
    const head = viewer.appendChild(element("div", "head"));
    const button = (label, text, act, off) => {
      const made = head.appendChild(element("button", "", text));
      made.type = "button";
      made.setAttribute("aria-label", label);
      made.disabled = off;
      made.addEventListener("click", act);
    };
    button("Previous step", "←", () => go(-1), at === 0);
    button("Next step", "→", () => go(1), at === rows.length - 1);
    head.append(element("b", "", `${at + 1} of ${rows.length}`), element("span", "faint", name));
    button("Close", "×", () => viewer.close(), false);
    viewer.append(picture(row, base, false));
    const words = viewer.appendChild(element("div", "words"));
    words.append(element("b", "", [title(row), row[2]].filter(Boolean).join(": ")), element("p", "", row[3]), element("p", "faint", facts(row)));
    // What was drawn anew lost the focus, and with it the keys.
    const again = [...head.querySelectorAll("button")].find((button) => button.getAttribute("aria-label") === focused && !button.disabled);
    if (viewer.open) (again || viewer).focus();
  };
  const go = (by) => {
    const at = Math.min(shown.rows.length - 1, Math.max(0, shown.at + by));
    if (at !== shown.at) {
      shown.at = at;
      draw();
    }
  };
  const MOVES = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  viewer.addEventListener("keydown", (event) => {
    if (event.key in MOVES) {
      event.preventDefault();
      go(MOVES[event.key]);
    }
  });
  viewer.addEventListener("click", (event) => event.target === viewer && viewer.close());
  viewer.addEventListener("close", () => shown?.frames[shown.at]?.focus());

  const strip = (index, name) => {
    const [goal, cut, base, rows] = load().films[index];
    const made = element("div", "film");
    if (goal) made.append(element("p", "goal", goal));
    const list = made.appendChild(element("div", "strip"));
    list.setAttribute("role", "list");
    const frames = rows.map((row, at) => {
      const item = list.appendChild(element("div", "frame"));
      item.setAttribute("role", "listitem");
      const open = item.appendChild(element("button", "", null));
      open.type = "button";
      open.setAttribute("aria-label", [title(row), row[2], row[3], "enlarge"].filter(Boolean).join(": "));
      open.append(picture(row, row[6] === null ? null : base, true));
      open.addEventListener("click", () => {
        shown = { rows, base, at, name, frames };
        draw();
        viewer.showModal();
        viewer.focus();
      });
      item.append(element("b", "", [title(row), facts(row)].filter(Boolean).join(" · ")));
      if (row[2]) item.append(element("span", "act", row[2]));
      if (row[3]) item.append(element("span", "note", row[3]));
      return open;
    });
    list.addEventListener("keydown", (event) => {
      const at = frames.indexOf(document.activeElement);
      if (at < 0 || !(event.key in MOVES)) return;
      event.preventDefault();
      const next = frames[Math.min(frames.length - 1, Math.max(0, at + MOVES[event.key]))];
      next.focus({ preventScroll: true });
      next.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
    if (cut) made.append(element("p", "faint", `and ${cut.toLocaleString("en")} more steps`));
    return made;
  };
  return { strip };
})();
