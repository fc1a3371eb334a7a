// The papers: what their tables claim, their tables next to the printed numbers, and verdicts on printed cells.

const signed = (value, digits = 1) => {
  const rounded = Number(Number(value).toFixed(digits)) || 0;
  return `${rounded > 0 ? "+" : ""}${rounded.toFixed(digits)}`;
};

function papersView() {
  const papers = printedPapers();
  const isRun = (paper) => paper.tables.some((table) => table.made);
  const idle = papers.filter((paper) => !isRun(paper));
  const parts = [viewHeading("The papers' claims, in print and in our runs"), ...claimsSection(papers)];
  parts.push(...papers.filter(isRun).flatMap(tablesOfPaper), ...verdictCounts(papers));
  if (idle.length) {
    const cells = (paper) => paper.tables.reduce((sum, table) => sum + table.planned, 0);
    parts.push(
      note(
        "Not run yet: ",
        idle.map((paper) => `${paper.title} (${plural(cells(paper), "cell")})`).join(", "),
        `. make reproduce-tables PAPER=${idle[0].name} runs one. `,
        element("a", { href: `${address(idle[0].name, idle[0].tables[0].key)}?missing=yes` }, "Show their printed numbers"),
      ),
    );
  }
  return parts;
}
function claimsSection(papers) {
  const claims = papers.flatMap((paper) =>
    paper.claims.map((claim) => ({ ...claim, shown: paper, table: paper.tables.find((each) => each.key === claim.table) })),
  );
  if (!claims.length) return [];
  const points = claims.filter((claim) => claim.trips === "False");
  const sum = (name) => points.reduce((total, claim) => total + Number(claim[name]), 0);
  const name = ({ shown, table, backbone }) => [positionOf(shown, table), backbone].filter(Boolean).join(", ");
  const margin = (claim, key) => signed(claim[key], claim.trips === "True" ? 0 : 1);
  const between = (low, high) => (low ? ` (${low} to ${high})` : "");
  const tau = ({ tau: mean, tau_low: low, tau_high: high }) =>
    mean ? Number(mean).toFixed(2) + between(low && Number(low).toFixed(2), Number(high).toFixed(2)) : "";
  const entries = points.map((claim) => ({
    name: name(claim),
    mean: Number(claim.margin),
    low: Number(claim.low),
    high: Number(claim.high),
    printed: Number(claim.printed_margin),
    strong: Number(claim.low) > 0 || Number(claim.high) < 0,
    title: `${name(claim)}\nprint ${margin(claim, "printed_margin")}, ours ${margin(claim, "margin")}`,
  }));
  const columns = [
    { head: "table", cell: (claim) => element("span", {}, tableLink(name(claim), claim.shown, claim.table)) },
    { head: "own method best in print", cell: (claim) => `${claim.best_printed} of ${claim.columns}` },
    { head: "best in ours", cell: (claim) => `${claim.best_ours} of ${claim.columns}` },
    { head: "margin in print", cell: (claim) => margin(claim, "printed_margin") },
    { head: "margin in ours (95\u00a0%)", cell: (claim) => margin(claim, "margin") + between(margin(claim, "low"), margin(claim, "high")) },
    { head: "a baseline is ahead", cell: (claim) => claim.beaten },
    { head: "wins most", cell: (claim) => methodLink(claim.winner) },
    { head: "order: tau (95\u00a0%)", cell: tau },
  ];
  return [
    element(
      "p",
      { class: "lead" },
      `The papers' own methods are best in ${sum("best_printed")} of ${sum("columns")} columns in print, and in ${sum("best_ours")} in our runs.`,
    ),
    intervals("margin of the own method over the best baseline", entries, {
      label: "points over the best baseline",
      zero: true,
      attributes: { class: "wide" },
      caption: "Margin of the paper's own method over the best baseline: ours with its 95 % interval; diamonds: print.",
    }),
    dataTable({ caption: "Claims of the papers' tables", name: "claims", columns, rows: claims }),
    note(
      "Margins are in points, in tables of trips in trips saved. The interval of ours has the variance over seeds and between draws of the masks. ",
      "A baseline is ahead: columns whose interval lies below zero. Tau is Kendall's, between the printed order of the methods and ours. ",
      "Only columns count in which the own method and two baselines are run.",
    ),
  ];
}
function tablesOfPaper(paper) {
  const own = (table) =>
    table.rows
      .filter((row) => row.key.startsWith("yours"))
      .map((row) => row.title)
      .join("; ");
  const columns = [
    { head: "table", cell: (table) => tableLink(positionOf(paper, table), paper, table) },
    { head: "contents", cell: (table) => table.title },
    { head: "cells run", cell: (table) => `${table.made} of ${table.planned}` },
    { head: "placed in it", cell: own },
  ];
  const tables = paper.tables.filter((table) => table.made);
  const made = tables.reduce((sum, table) => sum + table.made, 0);
  return [
    folded(
      `${paper.title}: ${plural(tables.length, "table")}, ${plural(made, "cell")} run`,
      dataTable({ caption: `Tables of ${paper.title}`, columns, rows: tables, name: `${paper.name} tables` }),
    ),
  ];
}
function verdictCounts(papers) {
  const judged = papers.filter((paper) => paper.verdicts.counts);
  if (!judged.length) return [];
  const names = Object.keys(judged[0].verdicts.counts);
  const lines = judged.map((paper) => [
    link(paper.title, "verdicts", paper.name),
    ...names.map((name) => String(paper.verdicts.counts[name] || "")),
  ]);
  return [
    element("h3", {}, "Verdicts on the printed cells"),
    simpleTable("Printed cells by verdict", ["paper", ...names], lines, { name: "verdicts" }),
    note(data.about_verdicts),
  ];
}

// ---- one table

const hasRun = (table, row, column) => isKnown(cellOf(table, row, column)?.run);
const isPrinted = (table) => Object.values(table.cells).some((cell) => cell.published);

function paperTableView(name, key) {
  const paper = data.papers.find((each) => each.name === name);
  const table = paper.tables.find((each) => each.key === key) || paper.tables.find((each) => each.made) || paper.tables[0];
  const isWhole = route.options.get("missing") === "yes" || !table.made;
  const filled = table.columns.filter((column) => isWhole || table.rows.some((row) => hasRun(table, row, column)));
  const datasets = ["", ...distinct(filled.map((column) => column.dataset))];
  const dataset = option("dataset", datasets);
  const columns = filled.filter((column) => !dataset || column.dataset === dataset);
  const rows = table.rows.filter((row) => isWhole || columns.some((column) => hasRun(table, row, column)));
  const model = option("model", table.kinds);
  const listed = data.papers.filter((each) => !each.own && (isWhole || each.tables.some((one) => one.made)));
  const hasVerdict = rows.some((row) => columns.some((column) => cellOf(table, row, column)?.[model]?.verdict));
  const tables = paper.tables.filter((each) => isWhole || each.made);
  const go = (...parts) => (location.hash = address(...parts));
  return [
    controls(
      selector(
        "Paper",
        "paper",
        listed.map((each) => [each.name, each.title]),
        paper.name,
        (value) => go(value),
      ),
      selector(
        "Table",
        "table",
        tables.map((each) => [each.key, each.label]),
        table.key,
        (value) => go(paper.name, value),
      ),
      selector(
        "Dataset",
        "dataset",
        datasets.map((each) => [each, each || "all"]),
        dataset,
      ),
      modelChoice(table.kinds, model),
      checkbox("Show missing cells", "missing", isWhole),
    ),
    viewHeading(table.heading),
    element(
      "p",
      { id: "counted" },
      countedText(table),
      isWhole || (rows.length === table.rows.length && filled.length === table.columns.length)
        ? ""
        : " Rows and columns without a run are left out.",
    ),
    printedTable(table, rows, columns, model),
    hasVerdict ? verdictLegend() : null,
    note(table.reading),
    ...curvesSection(paper, table, columns, model),
    ...statisticsSection(table, model, columns),
  ].filter(isKnown);
}
function verdictLegend() {
  const meanings = {
    equivalent: "equivalent to print",
    inconclusive: "inconclusive",
    different: "different",
    "under-specified": "different, a setting is open",
    contradictory: "contradictory print",
  };
  return note(
    ...Object.entries(meanings).flatMap(([verdict, meaning]) => [
      element("span", { class: `verdict ${verdict}` }, SIGNS[verdict]),
      ` ${meaning} `,
    ]),
  );
}
function printedTable(table, rows, columns, model) {
  const score = (row, column) => cellOf(table, row, column)?.[model];
  const printed = isPrinted(table);
  const keys = new Set(rows.map((row) => row.key));
  const best = new Map(
    columns.map((column) => {
      const ranks = rows
        .filter((row) => !row.variant_of)
        .map((row) => score(row, column)?.rank)
        .filter(isKnown);
      return [column, ranks.length > 1 ? Math.max(...ranks) : Infinity];
    }),
  );
  const ours =
    (column) =>
    ({ row }) => {
      const found = score(row, column);
      const verdict =
        found?.verdict && element("span", { class: `verdict ${found.verdict}` }, SIGNS[found.verdict], hiddenText(found.verdict));
      return element(
        "td",
        {
          class: isKnown(found?.rank) && found.rank >= best.get(column) ? "best" : null,
          "data-value": isKnown(found?.rank) ? found.rank : "",
        },
        scoreButton(found?.text, { table, row, column, cell: cellOf(table, row, column) }),
        verdict,
      );
    };
  const theirs =
    (column) =>
    ({ row }) => {
      const cell = cellOf(table, row, column);
      return element("td", { class: "printed", "data-value": cell?.published_value ?? "" }, cell?.published);
    };
  return element(
    "div",
    { id: "results" },
    dataTable({
      caption: `${capitalized(table.title)}. Headings sort; best of ours in bold; +1 unfolds variants of a row; a number opens its run.`,
      name: table.heading,
      texts: Object.keys(table.downloads).length ? table.downloads : null,
      rows: rows.map((row) => ({
        key: row.key,
        row,
        own: row.key.startsWith("yours"),
        parent: keys.has(row.variant_of) ? row.variant_of : null,
      })),
      columns: [
        { head: "method", cell: ({ row }) => methodLink(row.algorithm, row.title) },
        ...columns.flatMap((column) => [
          { head: model, group: column.key, cell: ours(column) },
          ...(printed ? [{ head: "published", group: column.key, cell: theirs(column) }] : []),
        ]),
      ],
    }),
  );
}
function curvesSection(paper, table, columns, asked) {
  const model = asked === "trained" ? "trained" : "received";
  const drawn = columns.filter((column) => table.rows.some((row) => runOf(cellOf(table, row, column))?.curve?.[model]));
  if (!drawn.length) return [];
  const key = option(
    "curves-of",
    drawn.map((column) => column.key),
  );
  const column = drawn.find((each) => each.key === key);
  const cost = option("against", ["trips", "bytes"]);
  const found = table.rows.map((row) => ({
    name: row.title,
    position: { table, row, column, cell: cellOf(table, row, column) },
  }));
  const leads = ({ row }) => row.key.startsWith("yours") || (row.algorithm === paper.name && !row.variant_of);
  return [
    element(
      "section",
      { id: "curves" },
      element("h2", {}, "Curves"),
      controls(
        selector("Column", "curves-of", paired(drawn.map((each) => each.key)), key),
        selector(
          "Against",
          "against",
          [
            ["trips", "client trips"],
            ["bytes", "bytes"],
          ],
          cost,
        ),
      ),
      ...curvesOf(found, cost, model, key, leads),
    ),
  ];
}

function statisticsSection(table, model, columns) {
  const found = table.statistics[model];
  const keys = columns.map((column) => column.key);
  const shown = found ? Object.entries(found.columns).filter(([key]) => keys.includes(key)) : [];
  if (!shown.length) return [];
  const worse = ({ others }) => others.filter((other) => other.adjusted !== null && other.adjusted < 0.05).length;
  const lines = shown.map(([key, column]) => [
    key,
    column.best,
    `${worse(column)} of ${column.others.length}`,
    column.agreement ? column.agreement.tau.toFixed(2) : "",
    column.front.join(", "),
  ]);
  const parts = [
    simpleTable("By column", ["column", "best", "significantly worse (5\u00a0%)", "tau with the paper", "Pareto front"], lines, {
      name: `${table.heading} statistics`,
    }),
  ];
  if (found.ranks) parts.push(rankChart(found.ranks));
  const percent = (value) => (isKnown(value) ? (100 * value).toFixed(1) : "");
  const measures = ["worst", "tenth", "median", "best", "std"];
  const clients = Object.entries(found.fairness).map(([title, part]) => [title, ...measures.map((name) => percent(part[name]))]);
  if (clients.length) {
    parts.push(
      folded(
        "Scores over the clients",
        simpleTable(
          "Over clients, in %: means over seeds and the ranked columns",
          ["method", "worst", "lowest tenth", "median", "best", "std"],
          clients,
          { name: `${table.heading} clients` },
        ),
      ),
    );
  }
  const sign = table.measure === "trips" ? -1 : 1;
  const pictures = shown
    .filter(([key]) => Object.keys(found.points[key] || {}).length > 1)
    .map(([key, column]) => {
      const entries = Object.entries(found.points[key]).map(([name, [bytes, score]]) => ({
        name,
        bytes,
        score: sign * score,
      }));
      return scatter(key, entries, new Set(column.front), sign, sign < 0 ? "client trips" : "test score in %");
    });
  if (pictures.length)
    parts.push(
      element("h3", {}, "Score against bytes"),
      ...pictures.slice(0, 3),
      ...(pictures.length > 3 ? [folded(plural(pictures.length - 3, "more column"), ...pictures.slice(3))] : []),
    );
  parts.push(
    note(
      isPrinted(table)
        ? data.about
        : data.about
            .split(/ (?=tau:|Front:)/)
            .filter((text) => !text.startsWith("tau:"))
            .join(" "),
    ),
  );
  return [element("section", { id: "statistics" }, element("h2", {}, "Statistics"), ...parts)];
}
function rankChart({ ranks, intervals: ends, columns, graphs }) {
  const entries = Object.entries(ranks).map(([name, mean]) => ({
    name,
    mean,
    low: (ends[name] || [mean])[0],
    high: (ends[name] || [mean, mean])[1],
  }));
  const over = graphs > 1 ? `of ${graphs} graphs; lines: 95 % bootstrap over graphs` : "of one graph";
  return intervals(
    "average ranks",
    entries.map((entry) => ({ ...entry, title: `${entry.name}: ${entry.mean.toFixed(2)}` })),
    { label: "average rank, 1 is best", domain: [1, entries.length], caption: `Average ranks over ${columns} columns ${over}.` },
  );
}

function verdictsView(name) {
  const paper = data.papers.find((each) => each.name === name && each.verdicts.counts);
  if (!paper) return papersView();
  const heads = ["row", "model", "column", "printed", "ours", "difference from", "to", "verdict", "open setting"];
  const parts = [viewHeading(`${paper.title}: verdicts on the printed cells`), note(data.about_verdicts)];
  for (const table of paper.tables) {
    const cells = paper.verdicts.cells.filter(([key]) => key === table.key).map((cell) => cell.slice(1));
    if (cells.length)
      parts.push(
        element("h3", {}, tableLink(table.label, paper, table)),
        simpleTable(`Printed cells whose registered run is stored: ${cells.length}`, heads, cells, {
          name: `${paper.title} ${table.key} verdicts`,
          limit: 15,
        }),
      );
  }
  return parts;
}
