"use strict";
(() => {
  const PAGE = 200;
  const { run, tasks } = JSON.parse(document.getElementById("data").textContent);
  const rows = tasks.map(([key, domain, state, score, success, steps, duration, worker, failure, folder, reason, attempts], order) => ({
    order, key, domain, state, result: state !== "done" ? state : success ? "passed" : "not passed", score, success, steps, duration, worker, failure, folder, reason, attempts: attempts.length, tries: attempts,
    text: [key, domain, worker, failure, reason, ...attempts.map((a) => a[8])].filter(Boolean).join("\n").toLowerCase(),
  }));
  const body = document.querySelector("#tasks tbody");
  const search = document.getElementById("search");
  const result = document.getElementById("result");
  const more = document.getElementById("more");
  const found = document.getElementById("found");
  let sort = { by: "order", up: true };
  let shown = [];
  let drawn = 0;

  const element = (name, className, content) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (content !== undefined && content !== null) made.textContent = content;
    return made;
  };
  const span = (s) => {
    if (s === null) return "-";
    if (s < 9.95) return s.toFixed(1) + "s";
    s = Math.round(s);
    if (s < 60) return s + "s";
    const two = (n) => String(n).padStart(2, "0");
    if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
    return `${Math.floor(s / 3600)}h ${two(Math.floor((s % 3600) / 60))}m`;
  };
  const rounded = (score) => Math.round(score * 1000) / 1000;
  const look = (row) =>
    ({ failed: "own", held: "infra", cancelled: "off", running: "live", queued: "none" })[row.state] || (row.success ? "pass" : "wrong");

  const detail = (row) => {
    const line = element("tr", "detail");
    const cell = line.appendChild(element("td"));
    cell.colSpan = 9;
    if (row.reason) cell.append(element("div", "reason", `${row.state}: ${row.reason}`));
    else if (!row.tries.length) cell.textContent = "No attempt yet.";
    const table = cell.appendChild(element("table")).appendChild(element("tbody"));
    for (const [number, worker, how, outcome, duration, cost, kind, blame, evidence, strip] of row.tries) {
      const one = table.appendChild(element("tr"));
      const first = one.appendChild(element("td", "tag"));
      first.append(element("i", how), `attempt ${number}: ${kind || outcome}${blame ? `, blamed on ${blame}` : ""}`);
      one.append(element("td", "tag", worker), element("td", "num", span(duration)), element("td", "num", cost ? "$" + cost.toFixed(4) : ""));
      const why = one.appendChild(element("td", "evidence", evidence || ""));
      why.append(element("div", "path", `runs/${run}/${row.folder}/${number}/`));
      if (strip !== null) {
        const place = table.appendChild(element("tr", "strips")).appendChild(element("td"));
        place.colSpan = 5;
        place.append(film.strip(strip, `${row.key}, attempt ${number}`));
      }
    }
    return line;
  };
  const draw = (row) => {
    const line = element("tr");
    const open = element("button", "open", row.key);
    open.type = "button";
    open.setAttribute("aria-expanded", "false");
    open.addEventListener("click", () => {
      const was = open.getAttribute("aria-expanded") === "true";
      open.setAttribute("aria-expanded", String(!was));
      if (was) line.nextSibling.remove();
      else line.after(detail(row));
    });
    line.appendChild(element("td")).append(open);
    line.append(element("td", "wideonly", row.domain));
    line.appendChild(element("td", "tag")).append(element("i", look(row)), row.result === "not passed" && row.score > 0 ? `score ${rounded(row.score)}` : row.result);
    line.append(
      element("td", "num", row.score === null ? "" : String(rounded(row.score))),
      element("td", "num wideonly", row.steps),
      element("td", "num", row.duration === null ? "" : span(row.duration)),
      element("td", "num wideonly", row.attempts),
      element("td", "wideonly tag", row.worker),
      element("td", "wideonly tag", row.failure),
    );
    return line;
  };
  const extend = () => {
    const next = shown.slice(drawn, drawn + PAGE);
    body.append(...next.map(draw));
    drawn += next.length;
    more.hidden = drawn >= shown.length;
    more.textContent = `Show more (${(shown.length - drawn).toLocaleString("en")} left)`;
  };
  const compare = (a, b) => {
    const x = a[sort.by], y = b[sort.by];
    if (x === y) return a.order - b.order;
    if (x === null) return 1; // what has no value stands last, either way
    if (y === null) return -1;
    const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
    return sort.up ? order : -order;
  };
  const refresh = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = rows.filter((row) => (!result.value || row.result === result.value) && words.every((word) => row.text.includes(word))).sort(compare);
    body.replaceChildren();
    drawn = 0;
    found.textContent = shown.length === rows.length ? "" : `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    extend();
  };
  for (const head of document.querySelectorAll("#tasks th")) {
    head.firstChild.addEventListener("click", () => {
      const by = head.dataset.sort;
      sort = { by, up: sort.by === by ? !sort.up : true };
      for (const other of document.querySelectorAll("#tasks th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sort.up ? "ascending" : "descending");
      refresh();
    });
  }
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, 80);
  });
  result.addEventListener("change", refresh);
  more.addEventListener("click", extend);
  refresh();
  // A link to a task, such as report.html#click-button_0, opens it.
  const follow = () => {
    let key = location.hash.slice(1);
    try { key = decodeURIComponent(key); } catch { return; }
    const place = shown.findIndex((row) => row.key === key);
    if (!key || place < 0) return;
    while (drawn <= place) extend();
    const open = [...body.querySelectorAll(".open")].find((button) => button.textContent === key);
    if (open.getAttribute("aria-expanded") === "false") open.click();
    open.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
})();
