"use strict";
// Sorts, filters and copies. Everything it touches is in the page already; it writes no markup and asks for nothing.
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  document.documentElement.classList.add("js");

  const key = (row, column) => {
    const cell = row.cells[column];
    return cell ? (cell.dataset.sort ?? cell.textContent.trim()) : "";
  };
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const sort = (table, column, header) => {
    const down = header.getAttribute("aria-sort") === "ascending";
    all("th", table.tHead).forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = Array.from(body.rows).map((row, at) => ({ row, at, key: key(row, column) }));
    rows.sort((a, b) => (down ? -1 : 1) * compare(a.key, b.key) || a.at - b.at);
    body.append(...rows.map((entry) => entry.row));
  };
  all("table.sortable").forEach((table) =>
    all("thead th", table).forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      button.addEventListener("click", () => sort(table, column, header));
      header.append(button);
    }));

  // How old what is shown is, by the reader's clock: the page itself holds no clock.
  const age = document.getElementById("age");
  const minutes = age ? Math.floor((Date.now() - Date.parse(age.dataset.newest)) / 60000) : -1;
  if (minutes >= 0) {
    const counts = [[Math.floor(minutes / 1440), "d"], [Math.floor(minutes / 60) % 24, "h"], [minutes % 60, "min"]];
    const from = Math.max(0, counts.findIndex(([count]) => count));
    const said = counts.slice(from, from + 2).filter(([count]) => count).map(([count, unit]) => `${count} ${unit}`);
    const old = said.join(" ") || "less than 1 min";
    age.textContent = age.dataset.what ? ` · ${age.dataset.what} ${old} ago` : ` Copy age: ${old}`;
  }

  const search = document.getElementById("filter");
  const counted = document.getElementById("filter-count");
  const boxes = all("input[data-severity]");
  const groups = all("details.rule").map((group) => ({
    group,
    causes: all("details.cause", group),
    rows: all("tbody > tr", group).map((row) => ({
      row, cause: row.closest("details.cause"), severity: row.dataset.severity, text: null,
    })),
  }));
  // Findings that have no row: a line each, below a line that begins with ">" and says what they share.
  const unshown = document.getElementById("unshown");
  let lines = null;
  const elsewhere = (words, wanted) => {
    if (!unshown) return 0;
    const panel = document.getElementById("elsewhere");
    panel.hidden = true;
    if (!words.length) return 0;
    lines ??= unshown.textContent.split("\n");
    const body = panel.querySelector("tbody");
    body.replaceChildren();
    let found = 0, severity, rule, where, who;
    for (const line of lines) {
      if (line[0] === ">") {
        [severity, rule] = line.slice(1).split("\t");
        continue;
      }
      const [place, span, owner, print] = line.split("\t");
      if (place !== "=") where = place;
      if (owner !== "=") who = owner;
      const text = `${rule} ${where} ${who} ${print}`.toLowerCase();
      if (!wanted.has(severity) || !words.every((word) => text.includes(word))) continue;
      found += 1;
      if (found > 200) continue;
      const row = body.insertRow();
      for (const [label, said] of [
        ["Severity", severity], ["Rule", rule], ["Where", span ? `${where} at ${span}` : where], ["Who", who],
        ["Finding ID", print],
      ]) {
        const cell = row.insertCell();
        cell.dataset.label = label;
        cell.textContent = said || "–";
      }
    }
    const left = Number(unshown.dataset.left);
    panel.hidden = !found && !left;
    body.parentElement.hidden = !found;
    document.getElementById("elsewhere-count").textContent =
      `${found.toLocaleString("en")} match${found > 200 ? " (first 200 shown)" : ""} by place, owner, rule or ID` +
      (left ? `. ${left.toLocaleString("en")} more findings are only in findings.jsonl and were not searched` : "") + ".";
    return found;
  };
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.severity));
    let shown = 0;
    for (const { group, causes, rows } of groups) {
      const hit = new Set();
      let here = 0;
      for (const entry of rows) {
        if (words.length) entry.text ??= (group.dataset.rule + " " + entry.row.textContent).toLowerCase();
        const fits = wanted.has(entry.severity) && words.every((word) => entry.text.includes(word));
        entry.row.hidden = !fits;
        here += fits;
        if (fits) hit.add(entry.cause);
      }
      for (const cause of causes) {
        cause.hidden = !hit.has(cause);
        if (words.length && hit.has(cause) && rows.length < 50) cause.open = true;
      }
      if (words.length && here) group.open = true;
      group.hidden = here === 0;
      shown += here;
    }
    const more = elsewhere(words, wanted);
    const total = Number(counted.dataset.total).toLocaleString("en");
    counted.textContent = `${shown.toLocaleString("en")} of ${total} shown` +
      (more ? `, ${more.toLocaleString("en")} more below` : "");
    suggest(shown + more ? [] : words, wanted);
  };

  // Where nothing fits: what would with every severity, what the words that fit nothing are near to, and each word alone.
  const near = document.getElementById("near");
  let names = null;
  const named = () => {
    const found = new Set();
    for (const { group, rows } of groups) {
      found.add(group.dataset.rule);
      for (const { row } of rows) {
        found.add(row.querySelector(".where").textContent);
        row.cells[2].textContent.split(/ · | \(|\)/).forEach((name) => found.add(name));
        if (row.id) found.add(row.id);
      }
    }
    for (const line of unshown ? unshown.textContent.split("\n").slice(0, 20000) : []) {
      const [place, , who = ""] = line.split("\t");
      if (place[0] !== ">") [place, ...who.split(/ · | \(|\)/)].forEach((name) => found.add(name));
    }
    return [...found].map((name) => name.trim()).filter((name) => name.length > 1);
  };
  const pairs = (word) => new Set(Array.from({ length: word.length - 1 }, (_, at) => word.slice(at, at + 2)));
  const likeness = (word, other) => {
    const [one, two] = [pairs(word), pairs(other)];
    return (2 * [...one].filter((pair) => two.has(pair)).length) / (one.size + two.size || 1);
  };
  const fitting = (word, wanted) => groups.flatMap(({ rows }) => rows).filter((entry) =>
    wanted.has(entry.severity) && entry.text?.includes(word)).length;
  const offer = (label, click) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = label;
    made.addEventListener("click", click);
    near.append(" ", made);
  };
  const suggest = (words, wanted) => {
    if (!near) return;
    near.replaceChildren();
    near.hidden = !words.length;
    if (!words.length) return;
    const everything = new Set(boxes.map((box) => box.dataset.severity));
    const hidden = groups.flatMap(({ rows }) => rows).filter((entry) =>
      !wanted.has(entry.severity) && words.every((word) => entry.text?.includes(word))).length;
    const ask = (text) => () => { search.value = text; filter(); search.focus(); };
    near.append("No matches.");
    if (hidden) {
      offer(`${hidden} with other severities`, () => { boxes.forEach((box) => { box.checked = true; }); filter(); });
      return;
    }
    const alone = words.map((word) => [word, fitting(word, everything)]);
    if (words.length > 1) alone.filter(([, count]) => count).forEach(([word, count]) => offer(`${word}: ${count}`, ask(word)));
    names ??= named();
    const sought = words.length > 1 ? alone.filter(([, count]) => !count).map(([word]) => word) : words;
    const ranked = names.map((name) => [name, Math.max(0, ...sought.map((word) => likeness(word, name.toLowerCase())))]);
    ranked.sort((one, two) => two[1] - one[1] || compare(one[0], two[0]));
    const best = ranked.filter(([, like]) => like >= 0.35).slice(0, 5);
    if (best.length) near.append(" Did you mean:");
    best.forEach(([name]) => offer(name, ask(name)));
  };
  if (search) {
    let due = 0;
    search.addEventListener("input", () => { clearTimeout(due); due = setTimeout(filter, 120); });
    boxes.forEach((box) => box.addEventListener("change", filter));
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
        event.preventDefault();
        search.focus();
      }
    });
  }
  const unfold = (open) => all("#findings details:not(.raw)").forEach((part) => { part.open = open; });
  document.getElementById("unfold")?.addEventListener("click", () => unfold(true));
  document.getElementById("fold")?.addEventListener("click", () => unfold(false));
  window.addEventListener("beforeprint", () => all("details.action").forEach((part) => { part.open = true; }));
  // A link to a finding opens what it is folded in.
  const unfolded = () => {
    const name = location.hash.slice(1);
    const row = name && document.getElementById(name);
    if (!row && search && /^[0-9a-f]{12}$/.test(name)) {  // a finding without a row of its own
      search.value = name;
      filter();
      document.getElementById("findings").scrollIntoView();
    }
    if (!row) return;
    for (let at = row; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    const detail = row.querySelector("details");
    if (detail) detail.open = true;
    row.scrollIntoView();
  };
  window.addEventListener("hashchange", unfolded);
  unfolded();

  const select = (node) => window.getSelection().selectAllChildren(node);
  const button = (command) => {
    if (command.querySelector("button")) return;
    const button = document.createElement("button");
    const code = command.querySelector("code");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      select(code);
      const copied = navigator.clipboard && await navigator.clipboard.writeText(code.textContent).then(() => true, () => false);
      button.textContent = copied ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    command.append(button);
  };
  // What stands in a folded part gets its button when it is unfolded: there may be thousands.
  all(".command").filter((command) => !command.closest("details:not([open])")).forEach(button);
  document.addEventListener("toggle", (event) => all(".command", event.target).forEach(button), true);
})();
