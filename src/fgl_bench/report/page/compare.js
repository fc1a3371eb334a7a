// Two rows in all settings that both were run in.

let placementsByTitle = null;
/** By title of a row, its placements by setting. */
function byTitle() {
  if (placementsByTitle) return placementsByTitle;
  placementsByTitle = new Map();
  for (const placement of placements()) {
    const { paper, table, row, column } = placement;
    if (!placementsByTitle.has(row.title)) placementsByTitle.set(row.title, new Map());
    placementsByTitle.get(row.title).set(`${paper.name}|${table.key}|${column.key}`, placement);
  }
  return placementsByTitle;
}
/** The settings of two titles; runs that several tables show count once. */
function sharedSettings(one, other) {
  if (one === other) return [];
  const seen = new Set();
  const found = [];
  for (const [key, a] of byTitle().get(one)) {
    const b = byTitle().get(other).get(key);
    const runs = b && `${a.cell.run}|${b.cell.run}`;
    if (!b || seen.has(runs)) continue;
    seen.add(runs);
    found.push({ a, b, setting: `${positionOf(a.paper, a.table)}: ${a.column.key}` });
  }
  return found;
}
const algorithmOf = (title) => [...byTitle().get(title).values()][0].row.algorithm;

/** The title to compare with: FedAvg where they share a setting, else the method that shares the most settings. */
function comparedByDefault(title) {
  const others = [...byTitle().keys()]
    .map((other) => ({ other, shared: sharedSettings(title, other).length }))
    .filter(({ shared }) => shared);
  const merit = ({ other, shared }) => shared + 1e6 * (algorithmOf(other) === "fedavg") - 1e9 * isReference(algorithmOf(other));
  return others.toSorted((a, b) => merit(b) - merit(a))[0]?.other;
}
/** The method that the page opens on: a paper's own one, or else one with many settings and a short title; never a reference. */
function firstCompared() {
  const own = new Set(data.papers.map((paper) => paper.name));
  const preference = (algorithm) => 1e6 * own.has(algorithm) - 1e5 * (algorithm === "fedavg") - 1e9 * isReference(algorithm);
  const merit = (title) => byTitle().get(title).size - 50 * title.length + preference(algorithmOf(title));
  return [...byTitle().keys()].toSorted((a, b) => merit(b) - merit(a))[0];
}

const scoresBySeed = ({ run }, model) =>
  new Map(run.numbers.seeds.map((seed, i) => [seed, run.numbers.scores[model][i]]).filter(([, score]) => isKnown(score)));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The mean difference over the common seeds with the half-width of its 95 % t-interval; null without two seeds. */
function difference(pair, model) {
  const [one, other] = [pair.a, pair.b].map((placement) => scoresBySeed(placement, model));
  const gaps = [...one].filter(([seed]) => other.has(seed)).map(([seed, score]) => score - other.get(seed));
  const gap = gaps.length ? mean(gaps) : null;
  const error =
    gaps.length > 1 ? Math.sqrt(gaps.reduce((sum, each) => sum + (each - gap) ** 2, 0) / (gaps.length - 1) / gaps.length) : null;
  const half = error === null ? null : error * data.quantiles[Math.min(gaps.length - 2, data.quantiles.length - 1)];
  return { ...pair, count: gaps.length, gap, half, excludesZero: half !== null && Math.abs(gap) > half + 1e-9 };
}

function compareView(one, other) {
  const titles = [...byTitle().keys()];
  if (titles.length < 2) return [viewHeading("Two methods side by side"), element("p", {}, "A comparison needs runs of two methods.")];
  const first = titles.includes(one) ? one : firstCompared();
  const partners = titles.filter((each) => sharedSettings(first, each).length);
  const second = titles.includes(other) && other !== first ? other : comparedByDefault(first) || titles.find((each) => each !== first);
  const shared = sharedSettings(first, second);
  const models = MODELS.filter((model) => shared.some((pair) => difference(pair, model).count));
  const model = option("model", models);
  const go = (a, b) => ((route.parts = ["compare", a, b]), choose({}));
  const parts = [
    viewHeading("Two methods side by side"),
    controls(
      selector("Method", "first", paired(titles), first, (value) => go(value, second)),
      selector("Against", "second", paired(distinct([second, ...partners]).toSorted()), second, (value) => go(first, value)),
      modelChoice(models, model),
    ),
  ];
  if (!shared.length) return [...parts, element("p", {}, "They have no setting in common.")];
  for (const [task, pairs] of byTask(shared, ({ a }) => a.run)) parts.push(...comparison(first, second, model, task, pairs));
  return [
    ...parts,
    note(
      "Each test stands alone: of twenty settings without a difference, about one interval excludes 0 by chance. Runs of one seed have no interval; with fewer than five, only large differences exclude 0.",
    ),
  ];
}
function comparison(first, second, model, task, pairs) {
  const all = pairs.map((pair) => difference(pair, model)).filter((each) => each.count);
  const higher = all.filter((each) => each.gap > 0).length;
  const lower = all.filter((each) => each.gap < 0).length;
  const score = ({ run }) => mean(run.numbers.scores[model].filter(isKnown)).toFixed(1);
  const gapText = ({ gap, half, excludesZero }) =>
    `${signed(gap)}${half === null ? "" : ` ± ${half.toFixed(1)}`}${excludesZero ? " *" : ""}`;
  const name = `${first} minus ${second}, points, ${model} model${task}`;
  const entries = all.map(({ setting, gap, half, excludesZero }) => ({
    name: setting,
    mean: gap,
    low: gap - (half || 0),
    high: gap + (half || 0),
    strong: excludesZero,
    title: `${setting}: ${signed(gap)}`,
  }));
  const worst = ({ run }) => run.numbers.worst[model]?.toFixed(1);
  const both = (head, value) => [
    { head: `${first}: ${head}`, cell: ({ a }) => value(a) },
    { head: `${second}: ${head}`, cell: ({ b }) => value(b) },
  ];
  return [
    element("h3", {}, `${capitalized(model)} model${task}`),
    element(
      "p",
      { class: "said" },
      element("b", {}, first),
      ` is higher in ${higher}, `,
      element("b", {}, second),
      ` in ${lower} of ${plural(all.length, "setting")}; the interval of the difference excludes 0 in ${all.filter((each) => each.excludesZero).length}.`,
    ),
    intervals(name, entries, { label: "points", zero: true, caption: `${name}. Bars: 95 % t-intervals over the common seeds.` }),
    dataTable({
      caption: "Test scores in %, and the mean difference over the common seeds with its 95 % t-interval; * excludes 0",
      name: `${first} against ${second} ${model}${task}`,
      rows: all,
      limit: 12,
      columns: [
        { head: "setting", cell: ({ setting }) => setting },
        { head: first, cell: ({ a }) => score(a) },
        { head: second, cell: ({ b }) => score(b) },
        { head: "difference", cell: gapText },
        { head: "seeds", cell: ({ count }) => String(count) },
      ],
    }),
    folded(
      "Clients and costs",
      dataTable({
        caption: `Worst client's test score in %, ${model} model; MB up and down per seed; seconds for all seeds`,
        name: `${first} against ${second} costs${task}`,
        rows: pairs,
        limit: 12,
        columns: [
          { head: "setting", cell: ({ setting }) => setting },
          ...both("worst client", worst),
          ...both("MB", ({ run }) => run.numbers.megabytes.toFixed(1)),
          ...both("seconds", ({ run }) => run.numbers.seconds.toFixed(1)),
        ],
      }),
    ),
  ];
}
