// The dialog of one run.

function openRun({ table, row, column, cell }) {
  const run = runOf(cell);
  byId("run-heading").textContent = `${row.title}, ${column.key}`;
  const parts = cell?.command ? [element("h3", {}, "Command"), commandLine(cell.command)] : [];
  parts.push(...(run ? [runFacts(table, cell, run), ...runPictures(run)] : [element("p", {}, "Not run yet.")]));
  byId("run-body").replaceChildren(...parts);
  if (!byId("run").open) byId("run").showModal();
}
function runFacts(table, cell, run) {
  const verdict = ({ verdict: found }) => (found ? ` (${found})` : "");
  const scores = table.kinds.filter((model) => cell[model]).map((model) => [model, cell[model].text + verdict(cell[model])]);
  const facts = [...scores, ["published", cell.published], ...run.facts].filter(([, text]) => isKnown(text));
  const list = element("dl", {}, ...facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
  if (run.file) {
    const href = run.file.split("/").map(encodeURIComponent).join("/");
    list.append(
      element("dt", {}, run.file.endsWith(".json") ? "file" : "folder"),
      element("dd", {}, element("a", { href, class: "file" }, run.file)),
    );
  }
  list.append(element("dt", {}, "in this page"), element("dd", {}, link("a link to this run", "run", cell.run)));
  return list;
}
function runPictures(run) {
  const parts = [];
  if (run.curve) {
    const lines = MODELS.filter((model) => run.curve[model]).map((model, i) => curveLine(model, i, run.curve, model));
    const key = lines.flatMap((line) => [legendLine(line.index), ` ${line.name} `]);
    parts.push(
      element("h3", {}, "Curve"),
      element("p", {}, ...key),
      lineChart(lines, { ...COSTS.trips, up: "test score in %", caption: "" }),
    );
  }
  for (const [name, matrices] of Object.entries(run.matrices || {})) {
    parts.push(element("h3", {}, name === "similarity" ? "Similarity of clients (first seed)" : "Weights of the averages (first seed)"));
    for (const [trip, matrix] of Object.entries(matrices)) {
      parts.push(heatmap(matrix, `trip ${trip}`));
      if (name === "mixing" && run.decentralized) parts.push(network(matrix, `who hears whom, trip ${trip}`));
    }
  }
  if (run.labels) parts.push(element("h3", {}, "Labels of every client"), labelCounts(run.labels));
  return parts;
}

/** A button with a score that opens its run. */
function scoreButton(text, position) {
  const { row, column } = position;
  return button(text || "not run", () => openRun(position), {
    class: text ? null : "absent",
    "aria-label": `${text || "not run"}, ${row.title}, ${column.key}: open the run`,
  });
}
function commandLine(text) {
  const code = element("code", {}, text);
  const copy = async (event) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    event.target.textContent = "Copied";
    announce("command copied");
  };
  return element("div", { class: "command" }, code, button("Copy", copy));
}
