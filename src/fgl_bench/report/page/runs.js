// Own runs: the table and the chart of the newest sweep, with rows, columns, metric and kind of model to choose.

const COST_METRICS = { megabytes: "MB sent and received per seed", trips: "client trips", seconds: "seconds for all seeds" };
const isLower = (metric) => metric in COST_METRICS || metric.startsWith("trips_to_");

/** The score of a run as ``[text, mean, half, complete]``; costs have no interval, and a seed without score makes it incomplete. */
function scoreOf(run, metric, model) {
  if (!run) return null;
  if (metric in COST_METRICS) return [Number(run.numbers[metric].toPrecision(4)).toString(), run.numbers[metric], null];
  return run.metrics[metric]?.[model] || null;
}

/** A table of runs by the chosen keys. Keys that are neither in rows nor in columns have one value each. */
function pivotOf(table) {
  const positions = table.rows.flatMap((row, r) =>
    table.columns.map((column, c) => ({
      table,
      row,
      column,
      cell: cellOf(table, row, column),
      values: { ...table.row_values[r], ...table.column_values[c] },
    })),
  );
  const valuesOf = (key) => distinct(positions.map(({ values }) => values[key]));
  const varied = Object.keys(positions[0].values).filter((key) => valuesOf(key).length > 1);
  const countOf = (key, value) => positions.filter(({ cell, values }) => cell?.run && values[key] === value).length;
  const mostCommon = (key) => valuesOf(key).toSorted((a, b) => countOf(key, b) - countOf(key, a))[0];
  const ofMethod = varied.filter((key) => key in table.row_values[0]);
  const sides = {
    method: ofMethod,
    ...Object.fromEntries(varied.filter((key) => key !== ofMethod[0] || ofMethod.length > 1).map((key) => [key, [key]])),
  };
  const rows = option("rows", Object.keys(sides));
  const columnNames = [
    "everything else",
    ...Object.keys(sides).filter((name) => !sides[name].some((key) => sides[rows].includes(key)) && sides[name].length),
  ];
  const columns = option("columns", columnNames);
  const columnKeys = sides[columns] || varied.filter((key) => !sides[rows].includes(key));
  const fixed = varied
    .filter((key) => !sides[rows].includes(key) && !columnKeys.includes(key))
    .map((key) => ({ key, values: valuesOf(key), chosen: option(`only-${key}`, valuesOf(key), mostCommon(key)) }));
  const kept = positions.filter(({ values }) => fixed.every(({ key, chosen }) => values[key] === chosen));
  const label = ({ values }, keys) => keys.map((key) => values[key] || "none").join(", ");
  const rowLabel = (position) => (rows === "method" ? position.row.title : label(position, sides[rows]));
  const columnLabel = (position) =>
    rows === "method" && columnKeys.length === varied.length - ofMethod.length ? position.column.key : label(position, columnKeys) || "all";
  const grid = new Map(kept.map((position) => [`${rowLabel(position)}|${columnLabel(position)}`, position]));
  return {
    rows: distinct(kept.map(rowLabel)),
    columns: distinct(kept.map(columnLabel)),
    at: (row, column) => grid.get(`${row}|${column}`),
    rowNames: Object.keys(sides),
    columnNames,
    chosenRows: rows,
    chosenColumns: columns,
    fixed,
    columnKeys,
  };
}

function runsView(key) {
  const paper = ownRuns();
  if (!paper) return papersView();
  const table = paper.tables.find((each) => each.key === key) || paper.tables[0];
  const pivot = pivotOf(table);
  const metrics = { ...table.metrics, ...COST_METRICS };
  const metric = option("metric", Object.keys(metrics));
  const model = option("model", table.kinds);
  const names = (all) => all.map((name) => [name, name.split(".").at(-1).replaceAll("_", " ")]);
  const chosen = { rows: pivot.chosenRows, columns: pivot.chosenColumns };
  return [
    viewHeading(paper.tables.length > 1 ? table.title : `Your runs: ${table.title}`),
    controls(
      selector(
        "Table",
        "table",
        paper.tables.map((each) => [each.key, each.label]),
        table.key,
        (value) => (location.hash = address(paper.name, value)),
      ),
      selector("Rows", "rows", names(pivot.rowNames), chosen.rows, (value) => choose({ rows: value, columns: null })),
      selector("Columns", "columns", names(pivot.columnNames), chosen.columns),
      ...pivot.fixed.map(({ key: fixed, values, chosen: value }) =>
        selector(
          names([fixed])[0][1],
          `only-${fixed}`,
          values.map((each) => [each, each || "none"]),
          value,
        ),
      ),
      selector("Metric", "metric", Object.entries(metrics), metric),
      modelChoice(table.kinds, model),
    ),
    element(
      "div",
      { class: "beside" },
      pivotTable(table, pivot, metric, model, metrics),
      element("div", {}, ...pivotChart(table, pivot, metric, model, metrics)),
    ),
    note(countedText(table), " ", table.reading),
    ...statisticsSection(table, model, table.columns),
  ];
}
function countedText(table) {
  return table.made === table.planned
    ? table.made === 1
      ? "The cell was run."
      : `All ${table.planned} cells were run.`
    : `${plural(table.made, "cell")} of ${table.planned} ${table.made === 1 ? "was" : "were"} run.`;
}

function pivotTable(table, pivot, metric, model, metrics) {
  const sign = isLower(metric) ? -1 : 1;
  const score = (row, column) => scoreOf(runOf(pivot.at(row, column)?.cell), metric, model);
  const competes = (found) => isKnown(found?.[1]) && found[3] !== false;
  const columns = pivot.columns.map((column) => {
    const competing = pivot.rows.map((row) => score(row, column)).filter(competes);
    const top = competing.length > 1 ? Math.max(...competing.map(([, mean]) => sign * mean)) : null;
    const cell = (row) => {
      const position = pivot.at(row, column);
      if (!position) return null;
      const found = score(row, column);
      const isBest = competes(found) && sign * found[1] === top;
      const text = runOf(position.cell) ? found?.[0] || "no score" : "";
      return element("td", { class: isBest ? "best" : null }, scoreButton(text, position));
    };
    return { head: column, cell };
  });
  const rowHeading = (row) => {
    const algorithm = pivot.at(row, pivot.columns[0])?.row.algorithm;
    return pivot.chosenRows === "method" ? methodLink(algorithm, row) : row;
  };
  const caption = `${capitalized(metrics[metric])}, ${model} model; best in bold. A number opens its run.`;
  const isDefault = metric === "test" && pivot.chosenRows === "method" && !pivot.fixed.length;
  return dataTable({
    caption,
    name: table.heading,
    rows: pivot.rows,
    texts: isDefault ? table.downloads : null,
    columns: [{ head: pivot.chosenRows, cell: rowHeading }, ...columns],
  });
}

/** Scores of every column, lines over a column key with numbers, or curves of one column. */
function pivotChart(table, pivot, metric, model, metrics) {
  const numberIn = (label) => Number.parseFloat(label.match(/^(?:\w+=)?(-?[\d.]+(?:e-?\d+)?)(?: clients?)?$/)?.[1]);
  const isNumeric =
    pivot.columnKeys.length === 1 && pivot.columns.length > 1 && pivot.columns.every((column) => Number.isFinite(numberIn(column)));
  const hasCurves = pivot.rows.some((row) => pivot.columns.some((column) => runOf(pivot.at(row, column)?.cell)?.curve?.[model]));
  const kinds = [
    ["scores", isNumeric ? `against ${pivot.columnKeys[0]}` : "by column"],
    ...(hasCurves
      ? [
          ["trips", "against client trips"],
          ["bytes", "against bytes"],
        ]
      : []),
  ];
  const kind = option(
    "chart",
    kinds.map(([name]) => name),
  );
  const picker = (...more) => controls(selector("Chart", "chart", kinds, kind), ...more);
  if (kind !== "scores") return curvesOfPivot(pivot, kind, model, picker);
  const entry = (row, column) => ({ row, column, score: scoreOf(runOf(pivot.at(row, column)?.cell), metric, model) });
  const known = (column) => pivot.rows.map((row) => entry(row, column)).filter(({ score }) => isKnown(score?.[1]));
  if (!pivot.columns.some((column) => known(column).length)) return [picker(), note("No run has this score.")];
  if (isNumeric) {
    const lines = pivot.rows
      .map((row, index) => ({
        name: row,
        index,
        points: pivot.columns
          .map((column) => [numberIn(column), ...(entry(row, column).score?.slice(1) || [])])
          .filter((point) => isKnown(point[1]))
          .map(([x, y, half]) => [x, y, half || 0]),
      }))
      .filter((line) => line.points.length);
    const last = (line) => (isLower(metric) ? 1 : -1) * line.points.at(-1)[1];
    const numbers = pivot.columns.map(numberIn);
    const type = Math.min(...numbers) > 0 && Math.max(...numbers) > 20 * Math.min(...numbers) ? "log" : "linear";
    const axes = { type, across: pivot.columnKeys[0].split(".").at(-1).replaceAll("_", " "), up: metrics[metric], dots: true, caption: "" };
    return [
      picker(),
      ...chosenLines(
        lines.toSorted((a, b) => last(a) - last(b)),
        (some) => lineChart(some, axes),
      ),
    ];
  }
  const [first, others] = [pivot.columns.slice(0, 4), pivot.columns.slice(4)];
  const ends = pivot.columns.flatMap(known).flatMap(({ score: [, mean, half] }) => [mean - (half || 0), mean + (half || 0)]);
  const domain = [Math.max(0, Math.min(...ends)), isLower(metric) ? Math.max(...ends) : Math.min(100, Math.max(...ends))];
  const panel = (column) =>
    known(column).length === 0
      ? null
      : intervals(
          `${metrics[metric]}, ${column}`,
          known(column).map(({ row, score: [text, mean, half] }) => ({
            name: row,
            mean,
            low: mean - (half || 0),
            high: mean + (half || 0),
            title: `${row}: ${text}`,
          })),
          { label: metrics[metric], caption: column, width: 330, domain, attributes: { class: "inline" } },
        );
  return [
    picker(),
    element("div", {}, ...first.map(panel)),
    others.length ? folded(plural(others.length, "more column"), ...others.map(panel)) : null,
  ].filter(isKnown);
}
function curvesOfPivot(pivot, cost, model, picker) {
  const withCurve = pivot.columns.filter((column) => pivot.rows.some((row) => runOf(pivot.at(row, column)?.cell)?.curve?.[model]));
  const column = option("curves-of", withCurve);
  const found = pivot.rows.map((name, index) => ({ name, index, position: pivot.at(name, column) }));
  return [
    picker(
      selector(
        "Column",
        "curves-of",
        withCurve.map((each) => [each, each]),
        column,
      ),
    ),
    ...curvesOf(found, cost, model, column),
  ];
}
/** Curves of runs, those with the highest last score first. found: ``{name, index, position}``. */
function curvesOf(found, cost, model, caption, isFirst = () => false) {
  const lines = found
    .map((each) => ({ ...each, curve: runOf(each.position?.cell)?.curve }))
    .filter(({ curve }) => curve?.[model] && curve[cost])
    .map(({ name, index, curve, position }) => ({ ...curveLine(name, index, curve, model, cost), leads: isFirst(position) }));
  const last = (line) => line.points.at(-1)[1];
  const ordered = lines.toSorted((a, b) => b.leads - a.leads || last(b) - last(a)).map((line, index) => ({ ...line, index }));
  const axes = { ...COSTS[cost], up: `test score of the ${model} model in %`, caption };
  return ordered.length ? chosenLines(ordered, (some) => lineChart(some, axes)) : [note("No run has a curve.")];
}
