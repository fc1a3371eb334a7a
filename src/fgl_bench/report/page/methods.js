// The methods, and the page of one method.

function methodsView() {
  const runs = new Map();
  for (const { row, cell } of placements()) runs.set(row.algorithm, (runs.get(row.algorithm) || new Set()).add(cell.run));
  const columns = [
    { head: "method", cell: (method) => methodLink(method.name) },
    { head: "runs", cell: (method) => String(runs.get(method.name)?.size || "") },
    { head: "summary", cell: (method) => element("span", {}, ...prose(method.about)) },
    { head: "checked against", cell: (method) => method.checks?.join(", ") },
  ];
  const count = (method) => runs.get(method.name)?.size || 0;
  return [
    viewHeading("Methods"),
    dataTable({
      caption: "All methods, those with runs first",
      name: "methods",
      columns,
      filter: true,
      limit: Infinity,
      rows: data.methods.toSorted((a, b) => (count(b) > 0) - (count(a) > 0)),
    }),
  ];
}

function methodView(name) {
  const method = methodNamed(name);
  if (!method) return [viewHeading(`There is no method ${name} here`), element("p", {}, link("All methods", "methods"))];
  return [viewHeading(name), ...methodText(method), ...methodResults(name)];
}
function methodText(method) {
  const open = method.text.filter((text) => text.startsWith("Resolution"));
  const how = method.text.filter((text) => !open.includes(text));
  const equations = distinct([method.lead, ...how].flatMap(formulas));
  const paragraph = (text) => element("p", { class: "prose" }, ...prose(text));
  const settled = (text) => paragraph(text.replace(/^Resolutions?[^:]*: *(.)/, (_, first) => first.toUpperCase()));
  const keys = method.keys.map(([key, value, meaning]) => [`algorithm.${key}`, value, meaning]);
  const parts = [
    method.lead ? element("p", { class: "lead" }, ...prose(method.lead)) : null,
    ...equations.map((text) => element("code", { class: "formula" }, text)),
    method.url ? element("p", {}, "Paper: ", paperOf(method)) : null,
    method.checked ? element("p", { class: "prose" }, method.checked) : null,
    how.length ? folded("How it works", ...how.map(paragraph)) : null,
    open.length ? folded("What its paper leaves open", ...open.map(settled)) : null,
    keys.length ? folded(`Keys (${keys.length})`, simpleTable(`Keys of ${method.name}`, ["key", "default", "meaning"], keys)) : null,
    method.target ? element("p", {}, "Source: ", element("code", {}, method.target)) : null,
    method.target.startsWith("fgl_bench.") ? commandLine(`fgl-bench show algorithm/${method.name.split("+")[0]}`) : null,
  ];
  return parts.filter(isKnown);
}
function methodResults(name) {
  const found = [...placements((row) => row.algorithm === name)];
  if (!found.length) return [note("It has no run here.")];
  const seen = new Set();
  const once = found.filter(({ cell, row }) => !seen.has(cell.run + row.title) && seen.add(cell.run + row.title));
  const position = { head: "table", cell: ({ paper, table }) => tableLink(positionOf(paper, table), paper, table) };
  const names = [
    { head: "row", cell: ({ row }) => row.title },
    { head: "setting", cell: ({ column }) => column.key },
  ];
  const score = (model) => ({ head: model, cell: ({ cell }) => cell[model]?.text });
  const results = [...byTask(found)].flatMap(([task, rows]) => [
    element("h3", {}, `Its cells${task}`),
    dataTable({
      caption: `Test scores of ${name}${task} as the tables show them`,
      limit: 12,
      rows,
      columns: [
        position,
        ...names,
        ...[...MODELS, "ours"].map(score),
        { head: "published", cell: ({ cell }) => cell.published },
        { head: "run", cell: ({ cell }) => link("open", "run", cell.run) },
      ],
    }),
  ]);
  const clients = (measure, model) => ({
    head: `${measure}${measure === "worst" ? " client" : ""}, ${model}`,
    cell: ({ run }) => run.numbers[measure][model]?.toFixed(1),
  });
  const costs = [...byTask(once)].map(([task, rows]) =>
    dataTable({
      caption: `How evenly the clients of ${name}${task} fare, in %, and what a run costs: MB up and down per seed, seconds for all seeds`,
      name: `${name} clients and costs`,
      limit: 12,
      rows,
      columns: [
        position,
        ...names,
        ...MODELS.flatMap((model) => [clients("worst", model), clients("median", model)]),
        { head: "MB per seed", cell: ({ run }) => run.numbers.megabytes.toFixed(1) },
        { head: "client trips", cell: ({ run }) => String(run.numbers.trips) },
        { head: "seconds", cell: ({ run }) => run.numbers.seconds.toFixed(1) },
      ],
    }),
  );
  const title = once[0].row.title;
  const other = comparedByDefault(title);
  return [
    ...results,
    folded("Clients and costs", ...costs),
    other ? element("p", {}, link(`Compare ${title} with ${other}`, "compare", title, other)) : null,
  ].filter(isKnown);
}
