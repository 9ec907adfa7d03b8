// What a page adds to its static content: tables that sort and filter, a method that is highlighted everywhere, values
// of points under the pointer, folds that open for links and for print. Without it the page has the same content.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

  // Tables
  const plain = (text) => text.toLowerCase().replace(/[−–‐‑]/g, "-").replace(/\u00a0/g, " ");  // minus signs as typed
  const leadingNumber = (text) => {
    const found = plain(text).replace(/[,⚠★☆✓\s]/g, "").match(/^[<>≤≥±]?(-?\d+\.?\d*(e-?\d+)?)/i);
    return found ? parseFloat(found[1]) : NaN;
  };
  const compareCells = (first, second, sign) => {
    const [one, other] = [leadingNumber(first), leadingNumber(second)];
    if (isNaN(one) !== isNaN(other)) return isNaN(one) ? 1 : -1;  // text and dashes follow numbers, in either order
    return sign * (isNaN(one) ? first.localeCompare(second) : one - other);
  };
  const sortRows = (table, column, header) => {
    const down = header.getAttribute("aria-sort") === "ascending", body = table.tBodies[0];
    all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const cell = (row) => row.cells[column].textContent.trim();
    body.append(...[...body.rows].sort((a, b) => compareCells(cell(a), cell(b), down ? -1 : 1)));
  };
  const enhanceTable = (table) => {
    const heads = all("thead th", table), rows = [...table.tBodies[0].rows];
    if (rows.length < 3 || rows.some((row) => row.cells.length !== heads.length)) return;
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", className: "sort", title: "Sort by this column" });
      if (head.querySelector("a")) button.setAttribute("aria-label", `Sort by ${head.textContent.trim()}`);
      else button.append(...head.childNodes);
      button.addEventListener("click", () => sortRows(table, column, head));
      head.append(button);
    });
    if (rows.length < 9) return;
    const name = table.caption ? table.caption.textContent : "this table";
    const filter = make("input", { type: "search", className: "filter", placeholder: "Filter rows" });
    filter.setAttribute("aria-label", `Filter the rows of ${name}`);
    const count = make("span", { className: "matches" });
    count.setAttribute("role", "status");
    filter.addEventListener("input", () => {
      const wanted = plain(filter.value.trim());
      rows.forEach((row) => { row.hidden = !plain(row.textContent).includes(wanted); });
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = !wanted ? "" : shown ? `${shown} of ${rows.length} rows` : `No row has “${filter.value.trim()}”.`;
    });
    table.closest(".wide").before(filter, count);
  };
  all(".wide > table:not(.facts, .sentence)").filter((table) => table.tHead).forEach(enhanceTable);

  // Columns of the overview, by kind of data and by criterion
  all("table.glance").forEach((table) => {
    const heads = all("thead th", table).slice(1), bar = make("div", { className: "filters" });
    const pickers = ["kind", "criterion"].map((key) => {
      const label = make("label", { textContent: `${key === "kind" ? "Data" : "Criterion"}: ` });
      const select = make("select", {});
      const names = [...new Set(heads.map((head) => head.dataset[key]))];
      select.append(new Option("all", ""), ...names.map((name) => new Option(name, name)));
      label.append(select);
      bar.append(label);
      return [key, select];
    });
    bar.addEventListener("change", () => {
      const shown = heads.map((head) => pickers.every(([key, { value }]) => !value || head.dataset[key] === value));
      all("tr", table).forEach((row) => [...row.cells].slice(1).forEach((cell, at) => { cell.hidden = !shown[at]; }));
      [...table.tBodies[0].rows].forEach((row) => {
        row.classList.toggle("unmeasured", [...row.cells].slice(1).every((cell, at) => !shown[at] || cell.textContent === "–"));
      });
    });
    table.closest(".wide").before(bar);
  });

  // Methods
  const chosen = new Set();
  const highlight = (method) => {
    if (!chosen.delete(method)) {
      chosen.add(method);
      document.dispatchEvent(new CustomEvent("shapeline:method", { detail: method }));  // the explorer shows it too
    }
    document.body.classList.toggle("chosen", chosen.size > 0);
    all("[data-method]").forEach((part) => part.classList.toggle("on", chosen.has(part.dataset.method)));
    all("button[data-method]").forEach((button) => button.setAttribute("aria-pressed", chosen.has(button.dataset.method)));
  };
  const methods = new Set(all("svg [data-method]").map((part) => part.dataset.method));
  all("tbody tr").forEach((row) => {
    const name = row.cells[0].textContent.trim();
    if (methods.has(name)) row.dataset.method = name;
  });
  const readValues = (svg) => {
    const [head, ...lines] = svg.querySelector("metadata").textContent.trim().split("\n").map((line) => line.split(","));
    return new Map(lines.filter((line) => line.length === head.length).map((line) => [line[0],
      head.slice(1).map((name, place) => `${name} ${line[place + 1] || "–"}`).join("\n")]));
  };
  all("svg[aria-label*='means against']").forEach((svg) => {
    const values = readValues(svg), there = [...new Set(all("[data-method]", svg).map((part) => part.dataset.method))];
    const bar = make("p", { className: "methods" });
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Methods to highlight in all figures and tables");
    there.forEach((name) => {
      const button = make("button", { type: "button", textContent: name, title: values.get(name) || "" });
      button.dataset.method = name;
      button.setAttribute("aria-pressed", "false");
      bar.append(button);
    });
    svg.closest(".wide").before(bar);
    all("[data-method]", svg).forEach((part) => {
      const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
      title.textContent = `${part.dataset.method}\n${values.get(part.dataset.method) || ""}`;
      part.prepend(title);
    });
  });
  document.addEventListener("click", (event) => {
    const part = event.target.closest("svg [data-method], button[data-method]");
    if (part) highlight(part.dataset.method);
  });

  // Wide parts: the keyboard moves those that are wider than the page.
  const reachWide = () => all(".wide").forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  });
  addEventListener("resize", reachWide);
  addEventListener("toggle", reachWide, true);
  reachWide();

  // Folds
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const fold = target && target.closest("details");
    if (fold) { fold.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => all("details").forEach((fold) => { fold.open = true; }));
  open();
})();
