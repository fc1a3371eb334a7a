// A table with the printed numbers next to ours, and the run behind a number.
const paper = () => data.papers[state.paper];
const table = () => paper().tables[state.table];
const kinds = () => table().kinds;
const kind = () => (kinds().includes(state.model) ? state.model : kinds()[0]);
const cellOf = (row, column) => table().cells[row.key + "|" + column.key];
const columns = () => table().columns.filter((column) => (!state.dataset || column.dataset === state.dataset) && (state.all || table().rows.some((row) => runOf(cellOf(row, column)))));
const rowsShown = () => table().rows.map((row, index) => ({ row, index })).filter(({ row }) => state.all || columns().some((column) => runOf(cellOf(row, column))));
const isPrinted = () => Object.values(table().cells).some((cell) => cell.published);

const isPartial = (one) => one.rows.some((row) => !one.columns.some((column) => one.cells[row.key + "|" + column.key].run)) || one.columns.some((column) => !one.rows.some((row) => one.cells[row.key + "|" + column.key].run));

function remember() {
  history.replaceState(null, "", address(paper().name, table().key, state.dataset, state.model));
}
function controls() {
  options(at("paper"), data.papers.map((each, i) => [i, each]).filter(([, each]) => papers().includes(each)).map(([i, each]) => [i, each.title]), state.paper);
  options(at("table"), paper().tables.map((each, i) => [i, each]).filter(([, each]) => tablesOf(paper()).includes(each)).map(([i, each]) => [i, each.label]), state.table);
  const names = [...new Set(table().columns.filter((column) => state.all || table().rows.some((row) => runOf(cellOf(row, column)))).map((column) => column.dataset))];
  options(at("dataset"), [["", "all"], ...names.map((name) => [name, name])], state.dataset);
  at("dataset").parentElement.hidden = names.length < 2;
  at("models").replaceChildren(make("legend", {}, "Model"), ...kinds().map((name) =>
    make("label", {}, make("input", { type: "radio", name: "model", value: name, checked: name === kind(), onchange: () => { state.model = name; show(); at("models").querySelector("input:checked").focus(); } }), name)));
  at("models").hidden = kinds().length < 2;
  at("all").checked = state.all;
  at("all-label").hidden = !state.all && !data.papers.some((each) => each.tables.some(isPartial));
  const drawn = columns().filter((column) => table().rows.some((row) => (runOf(cellOf(row, column)) || {}).curve));
  if (!drawn.some((column) => column.key === state.column)) state.column = drawn.length ? drawn[0].key : "";
  options(at("column"), drawn.map((column) => [column.key, column.key]), state.column);
  at("column").parentElement.hidden = drawn.length < 2;
}
function sorted() {
  const entries = rowsShown();
  if (state.sort === null) return entries;
  const value = ({ row }) => {
    if (state.sort === "") return row.title;
    const [key, what] = state.sort.split("\u0000");
    const cell = cellOf(row, { key });
    if (!cell) return null;
    return what === "published" ? cell.published_value : cell[kind()] ? cell[kind()].rank : null;
  };
  return entries.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || x === undefined || y === null || y === undefined) return ((x ?? null) === null) - ((y ?? null) === null) || a.index - b.index;
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return (state.down ? -order : order) || a.index - b.index;
  });
}
function heading(text, key) {
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
  const shown = columns(), entries = sorted(), both = isPrinted();
  const best = new Map(shown.map((column) => {
    const ranks = table().rows.map((row) => (cellOf(row, column)?.[kind()] || {}).rank).filter((rank) => rank !== null && rank !== undefined);
    return [column.key, ranks.length > 1 ? Math.max(...ranks) : null];
  }));
  const top = [make("td", {})];
  const head = [heading("method", "")];
  for (const column of shown) {
    top.push(make("th", { scope: "colgroup", colspan: both ? 2 : 1 }, column.key));
    const heads = [heading(kind(), column.key + "\u0000ours"), ...(both ? [heading("published", column.key + "\u0000published")] : [])];
    heads.forEach((th) => th.querySelector("button").prepend(hiddenText(column.key + " ")));
    head.push(...heads);
  }
  const body = entries.map(({ row }) => {
    const title = data.methods.some((each) => each.name === row.algorithm) ? link(row.title, "method", row.algorithm) : row.title;
    const line = [make("th", { scope: "row", class: row.key.startsWith("yours") ? "own" : null }, title)];
    for (const column of shown) {
      const cell = cellOf(row, column), entry = cell && cell[kind()];
      const open = make("button", { type: "button", class: entry && entry.text ? null : "absent", onclick: () => details(row, column, cell) },
        entry && entry.text ? entry.text : "not run", hiddenText(`, ${row.title}, ${column.key}: open the run`));
      const said = entry && entry.verdict ? make("span", { class: "verdict " + entry.verdict }, SIGNS[entry.verdict], hiddenText(entry.verdict)) : null;
      const isBest = entry && entry.rank !== null && entry.rank === best.get(column.key);
      line.push(make("td", { class: isBest ? "best" : null }, open, said));
      if (both) line.push(make("td", { class: "printed" }, cell ? cell.published : ""));
    }
    return make("tr", {}, ...line);
  });
  at("results").replaceChildren(make("table", {},
    make("caption", {}, `${table().title}. Columns sort by their headings; best of ours in bold. A number opens its run.`),
    make("thead", {}, make("tr", {}, ...top), make("tr", {}, ...head)), make("tbody", {}, ...body)));
  const texts = table().downloads || {};
  at("results-downloads").replaceChildren(...(texts.csv ? [downloads(table().heading, (ending) => texts[ending])] : []));
  at("legend").hidden = !both;
}
function counted() {
  const left = !state.all && (columns().length < table().columns.length || rowsShown().length < table().rows.length) && !state.dataset;
  const runs = plural(table().made, "cell");
  return table().made === table().planned ? `All ${table().planned} cells were run.`
    : `${runs} of ${table().planned} ${table().made === 1 ? "was" : "were"} run.${left ? " Rows and columns without a run are left out." : ""}`;
}

// ---- one run

function details(row, column, cell) {
  const run = runOf(cell);
  at("run-heading").textContent = `${row.title}, ${column.key}`;
  const parts = cell && cell.command ? [make("h3", {}, "Command"), command(cell.command)] : [];
  if (!run) parts.push(make("p", {}, "Not run yet."));
  else {
    const list = make("dl", {});
    for (const [name, text] of [...kinds().filter((each) => cell[each]).map((each) => [each, cell[each].text + (cell[each].verdict ? ` (${cell[each].verdict})` : "")]),
      ["published", cell.published], ...run.facts]) if (isKnown(text)) list.append(make("dt", {}, name), make("dd", {}, text));
    if (run.file) list.append(make("dt", {}, run.file.endsWith(".json") ? "file" : "folder"), make("dd", {}, make("a", { href: run.file.split("/").map(encodeURIComponent).join("/"), class: "file" }, run.file)));
    list.append(make("dt", {}, "in this page"), make("dd", {}, link("a link to this run", "run", cell.run)));
    parts.push(list);
    if (run.curve) parts.push(make("h3", {}, "Curve"), chart(MODELS.filter((model) => run.curve[model]).map((model, index) => line(model, index, run.curve, model)), "client trips", "test score in %", true));
    for (const [what, found] of Object.entries(run.matrices || {})) {
      parts.push(make("h3", {}, what === "similarity" ? "Similarity of clients (first seed)" : "Weights of the averages (first seed)"));
      for (const [trip, matrix] of Object.entries(found)) parts.push(heatmap(matrix, `trip ${trip}`), ...(what === "mixing" && run.decentralized ? [network(matrix, `who hears whom, trip ${trip}`)] : []));
    }
    if (run.labels) parts.push(make("h3", {}, "Labels of every client"), labels(run.labels));
  }
  at("run-body").replaceChildren(...parts);
  savable(at("run-body"));
  if (!at("run").open) at("run").showModal();
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
