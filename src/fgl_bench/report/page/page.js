// Search, and the view that the address asks for.

function* searchIndex() {
  for (const method of data.methods) {
    yield {
      kind: "Methods",
      text: `${method.name} ${method.about} ${method.lead}`,
      item: [methodLink(method.name), element("span", { class: "note" }, " ", ...prose(method.about))],
    };
  }
  for (const paper of data.papers) {
    for (const table of paper.tables) {
      const text = [paper.title, table.label, ...table.columns.map((column) => column.dataset), ...table.rows.map((row) => row.title)].join(
        " ",
      );
      const run = ` ${table.made || "none"} of ${table.planned} cells run`;
      yield {
        kind: table.made ? "Tables" : "Tables that were not run",
        text,
        item: [tableLink(`${paper.title}, ${table.label}`, paper, table), element("span", { class: "note" }, run)],
      };
    }
  }
  for (const { paper, table, row, column, cell } of placements()) {
    const text = `${row.title} ${row.algorithm} ${column.key} ${cell.run} ${cell.command} ${positionOf(paper, table)}`;
    yield {
      kind: "Runs",
      text,
      item: [link(`${row.title}, ${column.key}`, "run", cell.run), element("span", { class: "note" }, ` ${positionOf(paper, table)}`)],
    };
  }
}
function searchView(query = "") {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const most = 50;
  const groups = new Map(["Methods", "Tables", "Runs", "Tables that were not run"].map((kind) => [kind, []]));
  for (const { kind, text, item } of words.length ? searchIndex() : []) {
    if (words.every((word) => text.toLowerCase().includes(word))) groups.get(kind).push(item);
  }
  const found = [...groups].filter(([, items]) => items.length);
  announce(`${found.reduce((sum, [, items]) => sum + items.length, 0)} found`);
  if (byId("query").value !== query) byId("query").value = query;
  const list = ([kind, items]) => [
    element("h3", {}, `${kind} (${items.length})`),
    element("ul", { class: "found" }, ...items.slice(0, most).map((item) => element("li", {}, ...item))),
    items.length > most ? note(`and ${items.length - most} more`) : null,
  ];
  return [viewHeading(`Search: ${query}`), ...(found.length ? found.flatMap(list).filter(isKnown) : [element("p", {}, "Nothing found.")])];
}

/** The report opens on own runs, else on the papers' claims, else on the leaderboard. */
function homeSection() {
  if (ownRuns()) return "runs";
  return printedPapers().length || !Object.keys(data.leaderboards).length ? "papers" : "leaderboard";
}
const homeView = () => ({ runs: runsView, papers: papersView, leaderboard: leaderboardView })[homeSection()]();
const VIEWS = {
  "": homeView,
  papers: papersView,
  leaderboard: leaderboardView,
  methods: methodsView,
  method: methodView,
  compare: compareView,
  verdicts: verdictsView,
  search: searchView,
};
const SECTIONS = { method: "methods", verdicts: "papers" }; // of the menu, where a view has another name

function render() {
  const [name, ...rest] = route.parts;
  const opened = name === "run" ? [...placements()].find(({ cell }) => cell.run === rest[0]) : null;
  const [asked, key] = opened ? [opened.paper.name, opened.table.key] : [name, rest[0]];
  const isTable = !(asked in VIEWS) && data.papers.some((paper) => paper.name === asked);
  const isOwn = isTable && ownRuns()?.name === asked;
  const current = isOwn ? "runs" : isTable ? "papers" : SECTIONS[asked] || asked || homeSection();
  document.querySelectorAll("nav a").forEach((each) => {
    if (each.id === `to-${current}`) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  });
  const nodes = isOwn ? runsView(key) : isTable ? paperTableView(asked, key) : (VIEWS[asked] || homeView)(...rest);
  byId("view").replaceChildren(...nodes);
  document.title = `${byId("view-heading").textContent}: fgl-bench`;
  return opened;
}
function follow(isMove = true) {
  readAddress();
  if (byId("run").open) byId("run").close();
  const opened = render();
  if (isMove) {
    scrollTo(0, 0);
    byId("view-heading").focus({ preventScroll: true });
  }
  if (opened) openRun(opened);
}
function listen() {
  byId("to-runs").hidden = !ownRuns();
  byId("to-papers").hidden = !printedPapers().length;
  byId("to-leaderboard").hidden = !Object.keys(data.leaderboards).length;
  if (ownRuns()) byId("to-runs").href = address(ownRuns().name);
  byId("close").addEventListener("click", () => byId("run").close());
  byId("find").addEventListener("submit", (event) => event.preventDefault());
  byId("query").addEventListener("input", (event) => {
    history.replaceState(null, "", event.target.value ? address("search", event.target.value) : "#");
    follow(false);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  addEventListener("hashchange", () => follow());
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((each) => (each.open = true));
    document.querySelectorAll(".scroll table").forEach((each) => (each.style.zoom = Math.max(0.45, Math.min(1, 1000 / each.scrollWidth))));
  });
  addEventListener("afterprint", () => document.querySelectorAll(".scroll table").forEach((each) => (each.style.zoom = "")));
}
async function start() {
  const packed = Uint8Array.from(atob(byId("data").textContent), (letter) => letter.charCodeAt(0));
  data = JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
  byId("made").textContent = [data.made, data.less].filter(Boolean).join(" ");
  listen();
  follow(false);
  document.documentElement.dataset.ready = "";
}
start();
