/* The instance explorer: reads the JSON beside it, shows one instance by several methods, loads nothing.

The address `#instance=17&method=gp_shapley&method=occlusion` opens an instance; the second explorer of a page reads
`instance2` and `method2`, and so on. A `shapeline:method` event on the document, whose detail is a method's name,
selects that method; the explorer sends `shapeline:methods` with the list of the methods shown. */
(() => {
  "use strict";
  const ROWS = 12;
  const COLOURS = { for: [11, 79, 138], against: [163, 59, 0] };  // as in the static figures, in both schemes

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name in made && typeof value !== "string") made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  function format(value, signed) {
    if (value === null || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    let text = size === 0 ? "0" : size < 1e-3 || size >= 1e6 ? value.toExponential(1).replace("e+", "e")
      : size >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
    return (signed && value > 0 ? "+" : "") + text.replaceAll("-", "−");
  }

  /* Numbers are a list, or 16-bit integers in base64 with the value of the largest. */
  function decode(packed) {
    if (packed === null || packed === undefined || packed.text === undefined) return packed;
    const bytes = Uint8Array.from(atob(packed.text), (letter) => letter.charCodeAt(0));
    return Array.from(new Int16Array(bytes.buffer), (step) => step === -32768 ? null : step / 32767 * packed.largest);
  }

  /* Run lengths [feature, count, feature, count, ...] to the feature of each pixel. */
  function expand(runs, size) {
    const cells = new Int32Array(size[0] * size[1]);
    for (let place = 0, start = 0; place < runs.length; place += 2) {
      cells.fill(runs[place], start, start + runs[place + 1]);
      start += runs[place + 1];
    }
    return cells;
  }

  const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value || 0)), 0);

  function explore(root, number) {
    const data = JSON.parse(root.querySelector("script.explorer-data").textContent);
    const key = number ? String(number + 1) : "";
    const names = data.methods.map((method) => method.name);
    const say = (word) => data.words[word] ?? word;
    const state = { instance: 0, methods: [...data.chosen], chart: "bars", intervals: true, shared: true, all: false };
    const live = element("div", { class: "explorer-live" });
    const can = { chart: data.kind === "table", intervals: data.methods.some((method) => method.intervals) };

    // ------------------------------------------------------------------------------------------------ controls
    const choice = element("select", { "aria-label": "Instance", onchange: () => go(choice.selectedIndex) },
      ...data.instances.map((one) => element("option", {}, title(one))));
    const step = (text, name, by) => element("button",
      { type: "button", "aria-label": name, onclick: () => go(state.instance + by) }, text);
    const previous = step("‹", "Previous instance", -1), next = step("›", "Next instance", 1);
    const position = element("span", { class: "explorer-quiet" });
    const finder = element("input", { type: "search", placeholder: "Find", "aria-label": "Find an instance by name or text",
      title: "A name, number, class or word; Enter for the next match", oninput: () => find(0),
      onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); find(1); } } });
    const matched = element("span", { class: "explorer-quiet explorer-matches", "aria-live": "polite" });
    const boxes = names.map((name, place) => element("input", { type: "checkbox", onchange: () => pick(place) }));
    const methods = element("fieldset", { class: "explorer-methods" }, element("legend", {}, "Methods"),
      ...names.map((name, place) => element("label", {}, boxes[place], name)));
    const options = element("div", { class: "explorer-options" });
    function toggle(text, name) {
      const box = element("input", { type: "checkbox", checked: state[name],
        onchange: () => { state[name] = box.checked; draw(); } });
      options.append(element("label", {}, box, text));
    }
    if (can.chart) {
      const charts = element("select", { onchange: () => { state.chart = charts.value; draw(); } },
        element("option", { value: "bars" }, "bars"), element("option", { value: "waterfall" }, "waterfall"));
      options.append(element("label", {}, "Chart", charts));
    }
    if (can.intervals) toggle("95 % intervals", "intervals");
    if (names.length > 1) toggle("Same scale for all methods", "shared");
    const facts = element("dl", { class: "explorer-facts" });
    const panels = element("div", { class: "explorer-panels" });
    const note = element("p", { class: "explorer-note" });
    const status = element("p", { class: "explorer-hidden", role: "status" });
    live.append(element("div", { class: "explorer-steps" }, previous, choice, next, position,
      ...(data.instances.length > 2 ? [finder, matched] : [])),
      ...(names.length > 1 ? [methods] : []), options, facts, panels, note, status);

    function title(one) {
      const of = one.prediction || one.explained, known = !of || one.id.endsWith(`, ${of}`);
      return `${say("instance")} ${one.id}` + (known ? "" : `: ${of}`) + (one.wrong ? " (wrong)" : "");
    }

    /* What is searched of an instance; a typed minus sign finds a printed one. */
    const plain = (text) => String(text).toLowerCase().replaceAll("−", "-");
    const texts = data.instances.map((one) => plain([title(one), one.label || "", one.explained || "",
      ...(one.names || (one.summary && one.summary.names) || []),
      ...(one.values || []).map((value, place) => `${data.names[place]} = ${value}`)].join(" ")));

    /* Shows the first instance that has what is typed, or the next one: names first, then names that begin so. */
    function find(by) {
      const word = plain(finder.value).trim(), ids = data.instances.map((one) => plain(one.id));
      if (!word) { matched.textContent = ""; return; }
      const tests = [(place) => ids[place] === word, (place) => ids[place].startsWith(word), () => true];
      const all = ids.map((id, place) => place), named = all.filter((place) => ids[place].startsWith(word));
      const found = (/^-?\d+$/.test(word) && named.length ? named : all.filter((place) => texts[place].includes(word)))
        .sort((a, b) => tests.findIndex((test) => test(a)) - tests.findIndex((test) => test(b)) || a - b);
      const at = by ? (found.indexOf(state.instance) + by) % found.length : 0;
      if (found.length) go(found[at]);
      const absent = !/^-?\d+$/.test(word) || ids.includes(word) ? "" : `no instance ${word}; `;
      matched.textContent = `${absent}${found.length ? `match ${at + 1} of ${found.length}` : "no match"}`;
    }

    // --------------------------------------------------------------------------------------------------- state
    function go(place) {
      state.instance = Math.min(Math.max(place, 0), data.instances.length - 1);
      draw();
      share();
      status.classList.add("explorer-hidden");
      status.textContent = `${title(data.instances[state.instance])}, ${position.textContent}`;
    }

    function pick(place) {
      const others = state.methods.filter((one) => one !== place);
      state.methods = boxes[place].checked ? [...others, place].sort((a, b) => a - b) : others;
      draw();
      share();
      document.dispatchEvent(new CustomEvent("shapeline:methods", { detail: state.methods.map((one) => names[one]) }));
    }

    function share() {
      if (!data.links) return;
      const words = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
      words.set(`instance${key}`, data.instances[state.instance].id);
      words.delete(`method${key}`);
      for (const one of state.methods) words.append(`method${key}`, names[one]);
      try { history.replaceState(null, "", `#${words}`); } catch (error) { /* a sandboxed frame has no address */ }
    }

    /* Returns whether the address names an instance or a method of this explorer. */
    function follow() {
      if (!data.links) return false;
      const words = new URLSearchParams(location.hash.slice(1));
      const place = data.instances.findIndex((one) => one.id === words.get(`instance${key}`));
      const picked = words.getAll(`method${key}`).flatMap((name) => names.includes(name) ? [name] : name.split(","));
      const chosen = names.map((name, one) => one).filter((one) => picked.includes(names[one]));
      if (place >= 0) state.instance = place;
      if (chosen.length) state.methods = chosen;
      return place >= 0 || chosen.length > 0;
    }

    // ------------------------------------------------------------------------------------------------- drawing
    function shown() {  // the stored methods of the instance: name, scores, half-widths, and what is said of them
      const of = data.scores[state.instance], one = data.instances[state.instance];
      if (!of) return [summary(one)];
      return state.methods.map((place) => ({ ...data.methods[place], scores: decode(of[place] && of[place][0]),
        half: decode(of[place] && of[place][1]), base: one.base, full: one.full }));
    }

    function summary(one) {
      const { method, features, ...stored } = one.summary;
      return { ...data.methods[method], ...stored, features, base: one.base, full: one.full };
    }

    function draw() {
      const one = data.instances[state.instance];
      choice.selectedIndex = state.instance;
      previous.disabled = state.instance === 0;
      next.disabled = state.instance === data.instances.length - 1;
      position.textContent = `${state.instance + 1} of ${data.instances.length} ${data.noun}`.trim();
      boxes.forEach((box, place) => { box.checked = state.methods.includes(place); });
      facts.replaceChildren(...listFacts(one));
      const each = shown(), whole = each.length && !each[0].features;
      const limits = each.map((method) => reach(method));
      const scale = (place) => !state.shared ? limits[place] : limits
        .filter((_, other) => each[other].unit === each[place].unit)
        .reduce((a, b) => [Math.min(a[0], b[0]), Math.max(a[1], b[1])]);
      const order = rank(each);
      panels.replaceChildren(...(data.kind === "image" && one.image && whole ? [photograph(one)] : []),
        ...each.map((method, place) => panel(one, method, scale(place), order)));
      panels.classList.toggle("explorer-tiles", data.kind === "image" && Boolean(whole));
      note.textContent = legend(each, whole);
    }

    function listFacts(one) {
      const truth = data.signs.includes("a larger prediction") ? "true value" : "true class";
      const rows = [["instance", one.id], ["prediction", one.prediction], [truth, one.label],
        ["explained class", one.explained], ["value of the input", one.full === null ? null : format(one.full)],
        ["base value", one.base === null ? null : format(one.base)]];
      return rows.filter((row) => row[1] !== null && row[1] !== undefined && row[1] !== "").map(([name, text]) =>
        element("div", {}, element("dt", {}, say(name)), element("dd", {},
          name === truth && one.wrong ? `${text} (the prediction is wrong)` : text)));
    }

    function legend(each, whole) {
      const parts = [];
      if (!each.length) return "Select a method.";
      if (!whole) parts.push(`This instance has a summary only: its largest scores by ${each[0].name}. All methods are ` +
        `stored for the first ${data.scores.length} instances.`);
      parts.push(`${data.signs}. Unit: ${data.unit}.`, ...(data.note ? [data.note] : []));
      if (state.intervals && each.some((method) => method.half)) parts.push(data.kind === "table" || !whole
        ? "Lines are 95 % intervals." : "Without colour: the 95 % interval includes 0.");
      return parts.join(" ");
    }

    /* The order of the rows: by size for the first method that has scores. */
    function rank(each) {
      const first = each.find((method) => method.scores);
      if (!first) return [];
      return first.scores.map((_, place) => place)
        .sort((a, b) => Math.abs(first.scores[b] || 0) - Math.abs(first.scores[a] || 0) || a - b);
    }

    /* The smallest and the largest value that a method's panel shows. */
    function reach(method) {
      if (!method.scores) return [0, 0];
      const half = state.intervals && method.half;
      if (state.chart === "waterfall" && can.chart) {
        let low = Math.min(method.base, method.full), high = Math.max(method.base, method.full), stop = method.base;
        for (const place of [...rank([method])].reverse()) {
          stop += method.scores[place] || 0;
          const within = (half && half[place]) || 0;
          low = Math.min(low, stop - within);
          high = Math.max(high, stop + within);
        }
        return [low, high];
      }
      return method.scores.reduce(([low, high], score, place) => {
        const within = data.kind === "table" && half ? half[place] || 0 : 0;
        return [Math.min(low, score - within), Math.max(high, score + within)];
      }, [0, 0]);
    }

    function panel(one, method, scale, order) {
      const head = element("h4", {}, method.name);
      const about = [method.note, method.unit && `unit: ${method.unit}`].filter(Boolean).join("; ");
      const cost = about ? element("p", { class: "explorer-quiet" }, about) : null;
      let body;
      if (!method.scores) body = element("p", { class: "explorer-quiet" }, "No scores: the method failed.");
      else if (data.kind === "image" && one.image && !method.features) body = overlay(one, method, scale, order);
      else if (data.kind === "text" && !method.features) body = text(one, method, scale, order);
      else body = table(one, method, scale, order);
      return element("div", { class: "explorer-panel", role: "group", "aria-label": method.name }, head,
        ...(data.kind === "image" ? [body, cost] : [cost, body]));
    }

    function nameOf(one, method, place) {
      const own = method.features ? method.features[place] : place;
      if (method.names) return method.names[place];
      return (one.names || data.names)[own] ?? `feature ${own}`;
    }

    /* A score with its interval, to three digits of the method's largest, so that the scores stand in line. */
    function said(method, place) {
      const most = largest(method.scores), score = method.scores[place], within = method.half && method.half[place];
      const places = most < 1e-3 || most >= 1e6 ? null : Math.min(Math.max(0, 2 - Math.floor(Math.log10(most))), 6);
      const text = (value) => places === null || value === null ? format(value)
        : value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
      const shown = text(score).replace(/^−(?=[0.]+$)/, "");
      const half = /[1-9]/.test(text(within || 0)) ? text(within) : format(within);  // "± 0.000" would read as exact
      return (score > 0 && /[1-9]/.test(shown) ? "+" : "") + shown + (state.intervals && within ? ` ± ${half}` : "");
    }

    // ------------------------------------------------------------------------------------------- bars, waterfall
    function table(one, method, scale, order) {
      const short = order.length <= ROWS + 1;  // a last single feature takes no more room than its sum
      const shownRows = state.all || short ? order : order.slice(0, ROWS), rest = order.slice(shownRows.length);
      const values = one.values && !method.features ? one.values : null;
      const head = element("tr", {}, element("th", { scope: "col" }, say("feature")), element("td"), element("th", { scope: "col",
        class: "explorer-number" }, "score"));
      const sum = rest.reduce((total, place) => total + (method.scores[place] || 0), 0);
      const waterfall = state.chart === "waterfall" && can.chart && !method.features;
      let stop = method.base + sum;
      const bars = new Map([[-1, waterfall ? [method.base, stop] : [0, sum]]]);
      for (const place of [...shownRows].reverse()) {
        const score = method.scores[place] || 0;
        bars.set(place, waterfall ? [stop, stop + score] : [0, score]);
        stop += score;
      }
      const ends = waterfall ? [method.base, method.full] : [0];
      const row = (name, place, score, half) => element("tr", {}, element("th", { scope: "row" }, name,
        values && place >= 0 ? element("span", { class: "explorer-quiet" }, ` = ${values[place]}`) : null),
        element("td", { class: "explorer-bar" }, bar(bars.get(place), half, scale, ends)),
        element("td", { class: "explorer-number" }, ...score.split(/ (?=±)/).map((text) => element("span", {}, `${text} `))));
      const body = shownRows.map((place) => row(nameOf(one, method, place), place, said(method, place),
        method.half && method.half[place]));
      if (rest.length) body.push(row(`${rest.length} other ${say("feature")}s`, -1, format(sum, true), null));
      const made = element("div", { class: "explorer-wide", tabindex: "0", role: "region", "aria-label": `Scores by ${method.name}` },
        element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
      return short ? made : element("div", {}, made, element("button", { type: "button",
        onclick: () => { state.all = !state.all; draw(); } }, state.all ? `Fewer ${say("feature")}s` : `All ${order.length} ${say("feature")}s`));
    }

    function bar([from, to], half, [low, high], ends) {
      const span = high - low || 1, at = (value) => `${(100 * (value - low) / span).toFixed(2)}%`;
      const wide = (a, b) => `${(100 * Math.abs(b - a) / span).toFixed(2)}%`;
      const made = element("div", { "aria-hidden": "true" });
      const part = (kind, left, width) => {
        const one = element("i", { class: kind });
        one.style.left = at(left);
        if (width) one.style.width = width;
        made.append(one);
      };
      for (const end of ends) part("explorer-end", end);
      part(to >= from ? "explorer-for" : "explorer-against", Math.min(from, to), wide(from, to));
      if (half && state.intervals) part("explorer-interval", to - half, wide(0, 2 * half));
      return made;
    }

    // -------------------------------------------------------------------------------------------------- images
    function stretch(picture, one) {  // series, which are long and narrow, to a quarter of their length
      const [height, width] = one.size || data.size || [1, 1], ratio = Math.min(Math.max(width / height, 1 / 4), 4);
      picture.style.aspectRatio = ratio;
      picture.style.maxWidth = `${Math.min(224, 448 * ratio)}px`;
      return picture;
    }

    function photograph(one) {
      const picture = element("img", { src: one.image, alt: `The explained input, instance ${one.id}`, class: "explorer-image" });
      return element("div", { class: "explorer-panel" }, element("h4", {}, "Input"), stretch(picture, one));
    }

    const sure = (method, place) => !(state.intervals && method.half && Math.abs(method.scores[place]) <= (method.half[place] || 0));

    function overlay(one, method, scale, order) {
      const [height, width] = one.size || data.size, limit = largest(scale) || 1;
      const runs = one.cells || data.cells;
      const cells = runs ? expand(runs, [height, width]) : Int32Array.from({ length: height * width }, (_, place) => place);
      const top = order.length ? `; largest: ${order.slice(0, 3).map((place) => `${nameOf(one, method, place)} ${said(method, place)}`).join(", ")}` : "";
      const canvas = element("canvas", { width, height, class: "explorer-image", role: "img",
        "aria-label": `Scores by ${method.name} over the input${top}` });
      const read = element("p", { class: "explorer-quiet" }, `scale: ± ${format(limit)}`);
      const image = new Image();
      image.onload = () => paint(canvas, image, cells, method, limit);
      image.src = one.image;
      canvas.onmousemove = (event) => {
        const box = canvas.getBoundingClientRect();
        const place = Math.min(Math.floor((event.clientY - box.top) / box.height * height), height - 1) * width
          + Math.min(Math.floor((event.clientX - box.left) / box.width * width), width - 1);
        const feature = cells[place];
        read.textContent = feature < 0 ? "no feature" : `${nameOf(one, method, feature)}: ${said(method, feature)}`;
      };
      canvas.onmouseleave = () => { read.textContent = `scale: ± ${format(limit)}`; };
      return element("div", {}, stretch(canvas, one), read);
    }

    function paint(canvas, image, cells, method, limit) {
      const brush = canvas.getContext("2d", { willReadFrequently: true });
      brush.imageSmoothingEnabled = false;
      brush.drawImage(image, 0, 0, canvas.width, canvas.height);
      const pixels = brush.getImageData(0, 0, canvas.width, canvas.height);
      for (let place = 0; place < cells.length; place++) {
        const feature = cells[place], score = feature < 0 || !sure(method, feature) ? 0 : method.scores[feature] || 0;
        const share = Math.min(Math.abs(score) / limit, 1) * 0.85, tone = score > 0 ? COLOURS.for : COLOURS.against;
        const at = 4 * place, grey = 255 * 0.35 + 0.6 * (pixels.data[at] + pixels.data[at + 1] + pixels.data[at + 2]) / 3;
        for (let channel = 0; channel < 3; channel++) pixels.data[at + channel] = (1 - share) * grey + share * tone[channel];
        pixels.data[at + 3] = 255;
      }
      brush.putImageData(pixels, 0, 0);
    }

    // --------------------------------------------------------------------------------------------------- texts
    function text(one, method, scale, order) {
      const limit = largest(scale) || 1;
      const spans = method.scores.flatMap((score, place) => {
        const strength = score !== null && sure(method, place) ? Math.min(Math.abs(score) / limit, 1) : 0;
        const kind = strength < 0.05 ? "" : score > 0 ? "explorer-word-for" : "explorer-word-against";
        const word = element("span", { class: kind, title: said(method, place) }, nameOf(one, method, place));
        if (kind) word.style.setProperty("--share", strength.toFixed(2));
        return [...(place > 0 && place === one.second ? [element("br", { class: "explorer-second" })] : []), word, " "];
      });
      // Isolates keep the numbers behind right-to-left words in order.
      const few = order.slice(0, 6).map((place) => `\u2068${nameOf(one, method, place)}\u2069 ${said(method, place)}`).join(", ");
      return element("div", {}, element("p", { class: "explorer-words", dir: "auto" }, ...spans),
        element("p", { class: "explorer-quiet" }, `largest: ${few}; scale: ± ${format(limit)}`));
    }

    // ------------------------------------------------------------------------------------------------ keyboard
    live.addEventListener("keydown", (event) => {
      if (event.target === finder || event.target.tagName === "SELECT" || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const to = { ArrowLeft: state.instance - 1, ArrowRight: state.instance + 1, Home: 0, End: data.instances.length - 1 };
      if (!(event.key in to)) return;
      event.preventDefault();
      const focused = document.activeElement;
      go(to[event.key]);
      if (focused.disabled || !focused.isConnected) choice.focus();
    });
    window.addEventListener("hashchange", () => { if (follow()) draw(); });
    document.addEventListener("shapeline:method", (event) => {
      const place = names.indexOf(event.detail);
      if (place >= 0 && !state.methods.includes(place)) { boxes[place].checked = true; pick(place); }
    });
    root.classList.add("explorer-ready");
    root.append(live);
    const asked = new URLSearchParams(location.hash.slice(1)).get(`instance${key}`);
    const linked = follow();
    draw();
    if (asked !== null && data.links && !data.instances.some((one) => one.id === asked)) {
      status.classList.remove("explorer-hidden");
      status.textContent = `There is no instance ${asked} here; shown is ${data.instances[state.instance].id}.`;
      root.scrollIntoView();
    } else if (linked) root.scrollIntoView();
  }

  const start = () => {
    const every = [...document.querySelectorAll(".shapeline-explorer")];
    for (const root of every) if (!root.classList.contains("explorer-ready")) explore(root, every.indexOf(root));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  start();
})();
