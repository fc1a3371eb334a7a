// The leaderboard of each task.

const ALWAYS = ["rank", "wins", "points below best"]; // columns shown at first, with the scores

function leaderboardView(asked) {
  const tasks = Object.keys(data.leaderboards);
  if (!tasks.length)
    return [viewHeading("Leaderboard"), element("p", {}, "No cell of a leaderboard is stored here. make leaderboard computes them.")];
  const task = tasks.includes(asked) ? asked : tasks[0];
  const board = data.leaderboards[task];
  const names = [...board.head, ...board.columns, "backbone", "paper", "code", "cross-check"];
  const standard = [...ALWAYS, ...board.columns.slice(0, 4), "paper", "cross-check"].filter((name) => names.includes(name));
  const picked = route.options.has("columns") ? route.options.get("columns").split("|") : standard;
  const change = (name) => (isOn) =>
    choose({ columns: names.filter((each) => (each === name ? isOn : picked.includes(each))).join("|") || "none" });
  const boxes = (some) =>
    element(
      "div",
      { class: "boxes" },
      ...some.map((name) => checkbox(name, name.replaceAll(" ", "-"), picked.includes(name), change(name))),
    );
  const picker = folded(
    `Columns: ${picked.filter((name) => names.includes(name)).length} of ${names.length}`,
    boxes(board.head),
    element("h3", {}, "Scores"),
    boxes(board.columns),
    element("h3", {}, "About the entry"),
    boxes(names.slice(-4)),
  );
  picker.open = route.options.has("columns");
  return [
    viewHeading(task === "node" ? "Leaderboard" : `Leaderboard, task=${task}`),
    controls(selector("Task", "task", paired(tasks), task, (value) => (location.hash = address("leaderboard", value)))),
    element("p", {}, board.status),
    picker,
    dataTable({
      caption: "Test scores in % of tuned entries ± half-width of the 95 % t-interval. References stand below the line, without rank.",
      name: `leaderboard ${task}`,
      filter: true,
      limit: Infinity,
      rows: board.entries.map((entry) => ({ ...entry, below: entry.reference })),
      columns: [
        { head: "entry", cell: (entry) => methodLink(entry.algorithm, entry.name) },
        ...names.filter((name) => picked.includes(name)).map((name) => boardColumn(board, name)),
      ],
    }),
    ...(board.notes.length ? [note(...board.notes.join(" "))] : []),
    note("fgl-bench leaderboard score=received, trained or default shows other scores."),
  ];
}
function boardColumn(board, name) {
  const position = board.head.indexOf(name);
  const about = {
    backbone: (entry) => entry.model,
    paper: (entry) => paperOf(methodNamed(entry.algorithm)),
    code: (entry) => methodNamed(entry.algorithm)?.target,
    "cross-check": crossCheck,
  };
  if (position >= 0) return { head: name, cell: (entry) => entry.cells[position] };
  return { head: name, group: about[name] ? null : "scores", cell: about[name] || ((entry) => entry.scores[name]) };
}
function crossCheck({ algorithm }) {
  const method = methodNamed(algorithm);
  return method?.checks?.length ? link(method.checks.join(", "), "method", algorithm) : null;
}
/** The paper of a method: a link where its address is known. */
function paperOf(method) {
  if (!method?.url) return method?.paper;
  return element("a", { href: method.url, rel: "noreferrer" }, method.paper || "paper");
}
