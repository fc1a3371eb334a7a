// Which view the address asks for; all of it starts here.
const VIEWS = { "": overview, methods: methodsView, method: methodView, compare: compareView, verdicts: verdictsView, search: searchView };

function show() {
  controls();
  at("heading").textContent = table().heading;
  at("counted").textContent = counted();
  at("reading").textContent = table().reading;
  draw();
  curves();
  statistics();
  remember();
  document.title = `${table().heading}: fgl-bench`;
}
function recall([name, key, dataset, model]) {
  const chosen = data.papers.findIndex((each) => each.name === name);
  if (chosen < 0) return false;
  state.paper = chosen;
  const first = Math.max(0, paper().tables.findIndex((each) => each.made)), asked = paper().tables.findIndex((each) => each.key === key);
  state.table = asked < 0 ? first : asked;
  if (!table().made) state.all = true;
  state.dataset = table().columns.some((column) => column.dataset === dataset) ? dataset : "";
  if (MODELS.includes(model)) state.model = model;
  Object.assign(state, { sort: null, column: "" });
  return true;
}
function route(moved = true) {
  const parts = location.hash.slice(1).split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  if (at("run").open) at("run").close();
  let opened = null;
  if (parts[0] === "run") {
    opened = [...places()].find(({ cell }) => cell.run === parts[1]) || null;
    if (opened) parts.splice(0, parts.length, opened.paper.name, opened.table.key);
  }
  const isTable = !(parts[0] in VIEWS) && recall(parts);
  at("tables").hidden = !isTable;
  at("other").hidden = isTable;
  if (isTable) show();
  else {
    const [name, ...rest] = parts[0] in VIEWS ? parts : [""];
    at("other").replaceChildren(...VIEWS[name](...rest.map((part) => part || "")));
    savable(at("other"));
    document.title = `${at("view-heading").textContent}: fgl-bench`;
  }
  if (moved) { scrollTo(0, 0); at(isTable ? "heading" : "view-heading").focus({ preventScroll: true }); }
  if (opened) details(opened.row, opened.column, opened.cell);
}
function listen() {
  const first = data.papers.find((paper) => paper.tables.some((table) => table.made)) || data.papers[0];
  if (first) at("to-table").href = address(first.name, (first.tables.find((table) => table.made) || first.tables[0]).key);
  at("to-table").hidden = !first;
  at("choice").addEventListener("submit", (event) => event.preventDefault());
  at("paper").addEventListener("change", (event) => { recall([data.papers[Number(event.target.value)].name]); show(); });
  at("table").addEventListener("change", (event) => { Object.assign(state, { table: Number(event.target.value), dataset: "", sort: null, column: "" }); show(); });
  at("dataset").addEventListener("change", (event) => { Object.assign(state, { dataset: event.target.value, sort: null, column: "" }); show(); });
  at("column").addEventListener("change", (event) => { state.column = event.target.value; curves(); });
  at("all").addEventListener("change", (event) => {
    state.all = event.target.checked;
    if (!state.all && !table().made) recall([(paper().tables.some((each) => each.made) ? paper() : first).name]);
    show();
  });
  at("close").addEventListener("click", () => at("run").close());
  at("find").addEventListener("submit", (event) => event.preventDefault());
  at("query").addEventListener("input", (event) => { history.replaceState(null, "", event.target.value ? address("search", event.target.value) : "#"); route(false); });
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); at("main").focus(); });
  addEventListener("hashchange", () => route());
  addEventListener("beforeprint", () => document.querySelectorAll(".scroll table").forEach((each) => { each.style.zoom = Math.max(0.45, Math.min(1, 1000 / each.scrollWidth)); }));
  addEventListener("afterprint", () => document.querySelectorAll(".scroll table").forEach((each) => { each.style.zoom = ""; }));
}
async function start() {
  const packed = Uint8Array.from(atob(at("data").textContent), (letter) => letter.charCodeAt(0));
  data = JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
  at("made").textContent = [data.made, data.less].filter(Boolean).join(" ");
  listen();
  route(false);
  document.documentElement.dataset.ready = "";
}
start();
