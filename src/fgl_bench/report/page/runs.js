// Own runs: the table and the chart of the newest sweep, with rows, columns, metric and kind of model to choose.

const MOST_PANELS = 4; // charts of columns shown at first
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
  const names = (all) => all.map((name) => [name, keyName(name)]);
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
    note(countedText(table), metric === "test" ? " " : " Statistics below: ", table.reading),
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

/** The number in ``5 clients`` or ``lr=0.1``; NaN for other labels. */
const numberIn = (label) => Number.parseFloat(label.match(/^(?:\w+=)?(-?[\d.]+(?:e-?\d+)?)(?: clients?)?$/)?.[1]);
const keyName = (key) => key.split(".").at(-1).replaceAll("_", " ");

/** Scores by column, scores against the numbers of a key, or curves of one column. */
function pivotChart(table, pivot, metric, model, metrics) {
  const runAt = (row, column) => runOf(pivot.at(row, column)?.cell);
  const numeric = pivot.columnKeys.length === 1 ? pivot.columns.filter((column) => Number.isFinite(numberIn(column))) : [];
  const withCurve = pivot.columns.filter((column) => pivot.rows.some((row) => runAt(row, column)?.curve?.[model]));
  const kinds = { scores: numeric.length > 1 ? `against ${keyName(pivot.columnKeys[0])}` : "by column" };
  if (withCurve.length) Object.assign(kinds, { trips: "against client trips", bytes: "against bytes" });
  const kind = option("chart", Object.keys(kinds));
  const picker = selector("Chart", "chart", Object.entries(kinds), kind);
  if (kind !== "scores") {
    const column = option("curves-of", withCurve);
    const found = pivot.rows.map((name) => ({ name, position: pivot.at(name, column) }));
    return [controls(picker, selector("Column", "curves-of", paired(withCurve), column)), ...curvesOf(found, kind, model, column)];
  }
  const scores = pivot.columns.flatMap((column) =>
    pivot.rows.map((row) => ({ row, column, score: scoreOf(runAt(row, column), metric, model) })),
  );
  const known = scores
    .filter(({ score }) => isKnown(score?.[1]))
    .map(({ row, column, score: [text, mean, half] }) => ({ row, column, text, mean, half: half || 0 }));
  if (!known.length) return [controls(picker), note("No run has this score.")];
  const draw = numeric.length > 1 ? scoreLines : scorePanels;
  return [controls(picker), ...draw(known, pivot, metric, metrics[metric])];
}
function scoreLines(known, pivot, metric, up) {
  const points = known.map((each) => ({ ...each, number: numberIn(each.column) })).filter(({ number }) => Number.isFinite(number));
  const lines = pivot.rows.map((row, index) => ({
    name: row,
    index,
    points: points.filter((point) => point.row === row).map(({ number, mean, half }) => [number, mean, half]),
  }));
  const last = (line) => (isLower(metric) ? 1 : -1) * line.points.at(-1)[1];
  const [least, most] = [Math.min, Math.max].map((end) => end(...points.map(({ number }) => number)));
  const axes = {
    type: least > 0 && most > 20 * least ? "log" : "linear",
    across: keyName(pivot.columnKeys[0]),
    up,
    dots: true,
    caption: "",
  };
  return chosenLines(
    lines.filter((line) => line.points.length).toSorted((a, b) => last(a) - last(b)),
    (some) => lineChart(some, axes),
  );
}
function scorePanels(known, pivot, metric, label) {
  const low = Math.min(...known.map(({ mean, half }) => mean - half));
  const high = Math.max(...known.map(({ mean, half }) => mean + half));
  const domain = [Math.max(0, low), isLower(metric) ? high : Math.min(100, high)];
  const entry = ({ row, text, mean, half }) => ({ name: row, mean, low: mean - half, high: mean + half, title: `${row}: ${text}` });
  const panels = pivot.columns
    .filter((column) => known.some((each) => each.column === column))
    .map((column) => {
      const entries = known.filter((each) => each.column === column).map(entry);
      return intervals(`${label}, ${column}`, entries, { label, caption: column, width: 330, domain, attributes: { class: "inline" } });
    });
  const others = panels.slice(MOST_PANELS);
  return [
    element("div", {}, ...panels.slice(0, MOST_PANELS)),
    ...(others.length ? [folded(plural(others.length, "more column"), ...others)] : []),
  ];
}
/** Curves of runs, those with the highest last score first. found: ``{name, position}``. */
function curvesOf(found, cost, model, caption, isFirst = () => false) {
  const lines = found
    .map((each) => ({ ...each, curve: runOf(each.position?.cell)?.curve }))
    .filter(({ curve }) => curve?.[model] && curve[cost])
    .map(({ name, curve, position }) => ({ ...curveLine(name, 0, curve, model, cost), leads: isFirst(position) }));
  const last = (line) => line.points.at(-1)[1];
  const ordered = lines.toSorted((a, b) => b.leads - a.leads || last(b) - last(a)).map((line, index) => ({ ...line, index }));
  const axes = { ...COSTS[cost], up: `test score of the ${model} model in %`, caption };
  return ordered.length ? chosenLines(ordered, (some) => lineChart(some, axes)) : [note("No run has a curve.")];
}
