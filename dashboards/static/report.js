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

  const search = document.getElementById("filter");
  const counted = document.getElementById("filter-count");
  const boxes = all("input[data-severity]");
  const groups = all("details.rule").map((group) => ({
    group,
    rows: all("tbody > tr", group).map((row) => ({ row, severity: row.dataset.severity, text: null })),
  }));
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.severity));
    let shown = 0;
    for (const { group, rows } of groups) {
      let here = 0;
      for (const entry of rows) {
        if (words.length) entry.text ??= (group.dataset.rule + " " + entry.row.textContent).toLowerCase();
        const fits = wanted.has(entry.severity) && words.every((word) => entry.text.includes(word));
        entry.row.hidden = !fits;
        here += fits;
      }
      group.hidden = here === 0;
      shown += here;
    }
    counted.textContent = `${shown.toLocaleString("en")} shown`;
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
  const unfold = (open) => all("#findings details").forEach((part) => { part.open = open; });
  document.getElementById("unfold")?.addEventListener("click", () => unfold(true));
  document.getElementById("fold")?.addEventListener("click", () => unfold(false));
  window.addEventListener("beforeprint", () => all("details.rule, details.more").forEach((part) => { part.open = true; }));

  const select = (node) => window.getSelection().selectAllChildren(node);
  all(".command").forEach((command) => {
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
  });
})();
