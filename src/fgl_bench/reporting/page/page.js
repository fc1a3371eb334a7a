// Everything shown is taken from the json in the page; texts go in as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["var(--ink)", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#999999"];
const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const SIGNS = { within: "=", higher: "\u25B2", lower: "\u25BC" };
const WORDS = { within: "within both intervals", higher: "ours higher", lower: "ours lower" };
const state = { paper: 0, table: 0, dataset: "", model: "received", sort: null, down: true, column: "", hidden: new Set() };

function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "text", "circle", "title"].includes(name);
  const node = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const hiddenText = (text) => make("span", { class: "hidden" }, text);
const options = (select, entries, chosen) =>
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value, selected: String(value) === String(chosen) }, text)));

// ---- what is chosen

const paper = () => data.papers[state.paper];
const table = () => paper().tables[state.table];
const kinds = () => table().kinds;
const kind = () => (kinds().includes(state.model) ? state.model : kinds()[0]);
const columns = () => table().columns.filter((column) => !state.dataset || column.dataset === state.dataset);
const cellOf = (row, column) => table().cells[row.key + "|" + column.key];
const runOf = (cell) => (cell && cell.run ? data.runs[cell.run] : null);
const colour = (index) => COLOURS[index % COLOURS.length];
const dash = (index) => DASHES[Math.floor(index / COLOURS.length) % DASHES.length];

function remember() {
  const parts = [paper().name, table().key, state.dataset, state.model].map(encodeURIComponent);
  history.replaceState(null, "", "#" + parts.join("/"));
}
function recall() {
  const [name, key, dataset, model] = location.hash.slice(1).split("/").map(decodeURIComponent);
  state.paper = Math.max(0, data.papers.findIndex((each) => each.name === name));
  state.table = Math.max(0, paper().tables.findIndex((each) => each.key === key));
  if (table().columns.some((column) => column.dataset === dataset)) state.dataset = dataset;
  if (["received", "trained"].includes(model)) state.model = model;
}
function controls() {
  options(at("paper"), data.papers.map((each, i) => [i, each.title]), state.paper);
  options(at("table"), paper().tables.map((each, i) => [i, each.label]), state.table);
  const names = [...new Set(table().columns.map((column) => column.dataset))];
  options(at("dataset"), [["", "all"], ...names.map((name) => [name, name])], state.dataset);
  at("models").replaceChildren(make("legend", {}, "Model"), ...kinds().map((name) =>
    make("label", {}, make("input", { type: "radio", name: "model", value: name, checked: name === kind(), onchange: () => { state.model = name; show(); at("models").querySelector("input:checked").focus(); } }), name)));
  const drawn = columns().filter((column) => table().rows.some((row) => (runOf(cellOf(row, column)) || {}).curve));
  if (!drawn.some((column) => column.key === state.column)) state.column = drawn.length ? drawn[0].key : "";
  options(at("column"), drawn.map((column) => [column.key, column.key]), state.column);
  at("column").parentElement.hidden = !drawn.length;
}

// ---- the table

function sorted() {
  const rows = table().rows.map((row, index) => ({ row, index }));
  if (state.sort === null) return rows;
  const value = ({ row }) => {
    if (state.sort === "") return row.title;
    const [key, what] = state.sort.split("\u0000");
    const cell = cellOf(row, { key });
    if (!cell) return null;
    return what === "published" ? cell.published_value : cell[kind()] ? cell[kind()].rank : null;
  };
  return rows.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || x === undefined || y === null || y === undefined) return ((x ?? null) === null) - ((y ?? null) === null) || a.index - b.index;
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return (state.down ? -order : order) || a.index - b.index;
  });
}
function heading(text, key, span) {
  const direction = state.sort === key ? (state.down ? "descending" : "ascending") : "none";
  const turn = () => {
    state.down = state.sort === key ? !state.down : key !== "";
    state.sort = key;
    draw();
    at("status").textContent = `sorted by ${text}, ${state.down ? "descending" : "ascending"}`;
    [...at("results").querySelectorAll("th button")].find((each) => each.dataset.key === key).focus();
  };
  return make("th", { scope: "col", "aria-sort": direction }, make("button", { type: "button", "data-key": key, onclick: turn }, text));
}
function draw() {
  const shown = columns(), entries = sorted();
  const best = new Map(shown.map((column) => {
    const ranks = table().rows.map((row) => (cellOf(row, column)?.[kind()] || {}).rank).filter((rank) => rank !== null && rank !== undefined);
    return [column.key, ranks.length ? Math.max(...ranks) : null];
  }));
  const top = [make("td", {})];
  const head = [heading("method", "")];
  for (const column of shown) {
    top.push(make("th", { scope: "colgroup", colspan: 2 }, column.key));
    head.push(heading(`${kind() === "ours" ? "ours" : kind()}`, column.key + "\u0000ours"), heading("published", column.key + "\u0000published"));
  }
  head.slice(1).forEach((th, i) => th.querySelector("button").prepend(hiddenText(shown[Math.floor(i / 2)].key + " ")));
  const body = entries.map(({ row }) => {
    const line = [make("th", { scope: "row" }, row.title)];
    for (const column of shown) {
      const cell = cellOf(row, column), entry = cell && cell[kind()];
      const open = make("button", { type: "button", class: entry && entry.text ? null : "absent", onclick: () => details(row, column, cell) },
        entry && entry.text ? entry.text : cell && cell.available ? "not run" : "none", hiddenText(`, ${row.title}, ${column.key}: open the run`));
      const said = entry && entry.verdict ? make("span", { class: "verdict " + entry.verdict }, SIGNS[entry.verdict], hiddenText(WORDS[entry.verdict])) : null;
      const isBest = entry && entry.rank !== null && entry.rank === best.get(column.key);
      line.push(make("td", { class: isBest ? "best" : null }, open, said), make("td", { class: "printed" }, cell ? cell.published : ""));
    }
    return make("tr", {}, ...line);
  });
  at("results").replaceChildren(make("table", {},
    make("caption", {}, `${table().title}. Columns sort by their headings; best of ours in bold.`),
    make("thead", {}, make("tr", {}, ...top), make("tr", {}, ...head)), make("tbody", {}, ...body)));
}

// ---- one run

function details(row, column, cell) {
  const run = runOf(cell);
  at("run-heading").textContent = `${row.title}, ${column.key}`;
  const parts = [make("h3", {}, "Command"), command(cell ? cell.command : "")];
  if (!run) parts.push(make("p", {}, cell && cell.available ? "Not run yet." : "This method is not available here."));
  else {
    const list = make("dl", {});
    for (const [name, text] of [...kinds().filter((each) => cell[each]).map((each) => [each, cell[each].text + (cell[each].verdict ? ` (${WORDS[cell[each].verdict]})` : "")]),
      ["published", cell.published || "nothing"], ...run.facts]) list.append(make("dt", {}, name), make("dd", {}, text));
    parts.push(list);
    if (run.curve) parts.push(make("h3", {}, "Curve"), chart(["received", "trained"].map((model, index) => line(model, index, run.curve, model)), "client trips", "test score in %", true));
    for (const [what, found] of Object.entries(run.matrices || {})) {
      parts.push(make("h3", {}, what === "similarity" ? "Similarity of clients (first seed)" : "Weights of the averages (first seed)"));
      for (const [trip, matrix] of Object.entries(found)) parts.push(heatmap(matrix, `trip ${trip}`), ...(what === "mixing" && run.decentralized ? [network(matrix, `who hears whom, trip ${trip}`)] : []));
    }
    if (run.labels) parts.push(make("h3", {}, "Labels of every client"), labels(run.labels));
  }
  at("run-body").replaceChildren(...parts);
  at("run").showModal();
}
function command(text) {
  const code = make("code", {}, text);
  const button = make("button", { type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text); }
    catch { const range = document.createRange(); range.selectNodeContents(code); getSelection().removeAllRanges(); getSelection().addRange(range); document.execCommand("copy"); }
    button.textContent = "Copied";
    at("status").textContent = "command copied";
  } }, "Copy");
  return make("div", { class: "command" }, code, button);
}

// ---- statistics

function rows(caption, head, body) {
  return make("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...body.map(([first, ...rest]) => make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((text) => make("td", {}, text)))))));
}
function ranking(ranks) {
  const names = Object.keys(ranks.ranks), values = Object.values(ranks.ranks), half = Math.ceil(names.length / 2);
  const [width, left, right, base] = [980, 310, 670, 50], deep = base + 16 + 10 * ranks.groups.length;
  const x = (rank) => left + (rank - 1) / (names.length - 1 || 1) * (right - left);
  const picture = make("svg", { viewBox: `0 0 ${width} ${deep + 20 + 20 * half}`, role: "img", "aria-label": "average ranks: " + names.map((name, i) => `${name} ${values[i].toFixed(2)}`).join(", ") });
  picture.append(make("line", { class: "axis", x1: left, x2: right, y1: base, y2: base }), make("line", { x1: left, x2: x(1 + ranks.difference), y1: 18, y2: 18, stroke: "var(--ink)", "stroke-width": 1.5 }), make("text", { x: left, y: 12 }, `critical difference ${ranks.difference.toFixed(2)}`));
  names.forEach((_, i) => picture.append(make("line", { class: "axis", x1: x(i + 1), x2: x(i + 1), y1: base - 4, y2: base }), make("text", { x: x(i + 1), y: base - 8, "text-anchor": "middle" }, String(i + 1))));
  ranks.groups.forEach((group, i) => picture.append(make("line", { x1: x(ranks.ranks[group[0]]) - 5, x2: x(ranks.ranks[group.at(-1)]) + 5, y1: base + 10 + 10 * i, y2: base + 10 + 10 * i, stroke: "var(--ink)", "stroke-width": 4, "stroke-linecap": "round" })));
  names.forEach((name, i) => {
    const first = i < half, y = deep + 14 + 20 * (first ? i : names.length - 1 - i), edge = first ? left - 10 : right + 10;
    picture.append(make("path", { d: `M${x(values[i])} ${base}V${y}H${edge}`, fill: "none", stroke: "var(--quiet)" }), make("text", { x: first ? edge - 4 : edge + 4, y: y + 4, "text-anchor": first ? "end" : "start" }, `${name} ${values[i].toFixed(2)}`));
  });
  return make("figure", { class: "wide" }, picture, make("figcaption", {}, `Average ranks over ${ranks.columns} columns; a bar joins methods that are not told apart (Nemenyi, 5 %).` + (ranks.friedman === null ? "" : ` Friedman p = ${ranks.friedman.toPrecision(2)}.`)));
}
function against(points, key, sign) {
  const entries = Object.entries(points), index = new Map(table().rows.map((row, i) => [row.title, i]));
  const scores = entries.map(([, point]) => sign * point[1]), logs = entries.map(([, point]) => Math.log10(1 + point[0] / 1e6));
  const { picture, x, y } = frame(room(560), 320, 0, Math.max(...logs, 1) * 1.05, Math.max(...scores) + 1, Math.min(...scores) - 1, "log10(1 + MB moved a seed)", "score", `score against bytes, ${key}`);
  const front = new Set(table().statistics[kind()].columns[key]?.front || []);
  entries.forEach(([name, point], i) => picture.append(make("circle", { cx: x(logs[i]), cy: y(scores[i]), r: front.has(name) ? 6 : 4, fill: colour(index.get(name)), stroke: front.has(name) ? "var(--ink)" : "none" }, make("title", {}, `${name}: ${(point[0] / 1e6).toFixed(1)} MB, ${(sign * point[1]).toFixed(1)}`)), front.has(name) ? make("text", { x: x(logs[i]) + (x(logs[i]) > room(560) / 2 ? -8 : 8), y: y(scores[i]) - 6, "text-anchor": x(logs[i]) > room(560) / 2 ? "end" : "start" }, name) : ""));
  return make("figure", { class: "inline" }, picture, make("figcaption", {}, `${key}: what is moved and what is reached; named: the Pareto front`));
}
function statistics() {
  const found = (table().statistics || {})[kind()], parts = [];
  at("counts").textContent = found && Object.keys(found.verdicts).length ? `Against the printed cells: ${found.counts.within} within, ${found.counts.higher} higher, ${found.counts.lower} lower.` : "";
  const keys = columns().map((column) => column.key);
  const shown = found ? Object.entries(found.columns).filter(([key]) => keys.includes(key)) : [];
  if (!shown.length) { at("statistics").replaceChildren(make("p", { class: "note" }, "Too few runs yet.")); return; }
  parts.push(make("p", { class: "note" }, data.about));
  parts.push(rows("By column", ["column", "best", "worse at 5 %", "of", "tau with the paper", "front"], shown.map(([key, column]) => [key, column.best,
    String(column.others.filter((other) => other.adjusted < 0.05).length), String(column.others.length), column.agreement ? column.agreement.tau.toFixed(2) : "", column.front.join(", ")])));
  if (found.ranks) parts.push(ranking(found.ranks));
  const known = Object.entries(found.fairness), percent = (value) => (value === undefined || value === null ? "" : (100 * value).toFixed(1));
  if (known.length) parts.push(rows("Over clients, in %: means over seeds and the ranked columns", ["method", "worst", "lowest tenth", "median", "best", "std"], known.map(([title, part]) => [title, ...["worst", "tenth", "median", "best", "std"].map((name) => percent(part[name]))])));
  for (const [key] of shown) if (Object.keys(found.points[key] || {}).length > 1) parts.push(against(found.points[key], key, table().measure === "trips" ? -1 : 1));
  at("statistics").replaceChildren(...parts);
}

// ---- all of it

function show() {
  controls();
  at("heading").textContent = table().heading;
  at("reading").textContent = table().reading;
  draw();
  curves();
  statistics();
  remember();
}
at("choice").addEventListener("submit", (event) => event.preventDefault());
at("paper").addEventListener("change", (event) => { Object.assign(state, { paper: Number(event.target.value), table: 0, dataset: "", sort: null, column: "" }); show(); });
at("table").addEventListener("change", (event) => { Object.assign(state, { table: Number(event.target.value), dataset: "", sort: null, column: "" }); show(); });
at("dataset").addEventListener("change", (event) => { Object.assign(state, { dataset: event.target.value, sort: null, column: "" }); show(); });
at("column").addEventListener("change", (event) => { state.column = event.target.value; curves(); });
at("close").addEventListener("click", () => at("run").close());
at("made").textContent = data.made;
recall();
show();
