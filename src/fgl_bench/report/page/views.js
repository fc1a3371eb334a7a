// The views besides tables: the overview, methods, two methods side by side, verdicts on printed cells, and what a search finds.
const title = (text) => make("h2", { id: "view-heading", tabindex: -1 }, text);
const tableLink = (text, paper, table) => link(text, paper.name, table.key);
const methodLink = (name, text) => link(text || name, "method", name);

function overview() {
  const papersRun = data.papers.filter((paper) => !paper.own && paper.tables.some((table) => table.made));
  const idle = data.papers.filter((paper) => !paper.own && !paper.tables.some((table) => table.made));
  const own = data.papers.find((paper) => paper.own);
  const numbers = Object.values(data.runs).map((each) => each.numbers), different = (key) => new Set(numbers.map((each) => each[key])).size;
  const parts = [title("What was run"), make("p", {}, numbers.length ? `${plural(numbers.length, "run")} of ${plural(different("algorithm"), "method")} on ${plural(different("dataset"), "data set")}.` : "Nothing has been run yet.")];
  if (own) parts.push(make("h3", {}, "Your runs"), rows("Tables of your runs", ["table", "runs", "methods", "settings"],
    own.tables.map((table) => [tableLink(table.title, own, table), String(table.made), String(table.rows.length), String(table.columns.length)])));
  if (papersRun.length) {
    const body = papersRun.flatMap((paper) => paper.tables.filter((table) => table.made).map((table) => {
      return [tableLink(placeOf(paper, table), paper, table), table.title, `${table.made} of ${table.planned}`, table.rows.filter((row) => row.key.startsWith("yours")).map((row) => row.title).join("; ")];
    }));
    parts.push(make("h3", {}, "The papers' tables"), rows("Cells that were run", ["table", "what it shows", "cells run", "placed in it"], body, "papers-tables"));
  }
  if (idle.length) parts.push(note("Not run yet: ", idle.map((paper) => `${paper.title} (${plural(paper.tables.reduce((sum, table) => sum + table.planned, 0), "cell")})`).join(", "),
    ". make reproduce-tables PAPER=", idle[0].name, " runs one. ", make("button", { type: "button", class: "plain", onclick: () => { state.all = true; location.hash = address(idle[0].name, idle[0].tables[0].key); } }, "Show their printed numbers")));
  const judged = data.papers.filter((paper) => paper.verdicts && paper.verdicts.counts);
  if (judged.length) {
    const names = Object.keys(judged[0].verdicts.counts);
    parts.push(make("h3", {}, "Verdicts on the printed cells"), rows("Printed cells by verdict", ["paper", ...names], judged.map((paper) => [link(paper.title, "verdicts", paper.name), ...names.map((name) => paper.verdicts.counts[name] || "")]), "verdicts"), note(data.about_verdicts));
  }
  if (data.leaderboard.length) parts.push(make("h3", {}, "Leaderboard"), rows("Leaderboard", data.leaderboard[0], data.leaderboard.slice(1)));
  for (const [task, [head, ...body]] of Object.entries(data.task_leaderboards || {})) parts.push(make("h3", {}, `Leaderboard, task=${task}`), rows(`Leaderboard, task=${task}`, head, body));
  const { used, others } = methodLists();
  if (used) parts.push(make("h3", {}, "Methods that were run"), used);
  if (others) parts.push(make("p", {}, link("All methods", "methods")));
  return parts;
}
function methodLists() {
  const counts = new Map();
  for (const { row, cell } of places()) counts.set(row.algorithm, (counts.get(row.algorithm) || new Set()).add(cell.run));
  const item = (method) => make("li", {}, methodLink(method.name), counts.has(method.name) ? ` (${plural(counts.get(method.name).size, "run")})` : "", make("span", { class: "note" }, " ", ...prose(method.about)));
  const list = (found) => (found.length ? make("ul", { class: "methods" }, ...found.map(item)) : "");
  const [used, others] = [true, false].map((wanted) => data.methods.filter((method) => counts.has(method.name) === wanted));
  return { used: list(used), others: list(others) };
}
function methodsView() {
  const { used, others } = methodLists();
  return [title("Methods"), ...(used ? [make("h3", {}, "With runs"), used] : []), ...(others ? [make("h3", {}, "Without a run here"), others] : [])];
}

// ---- one method

function methodView(name) {
  const method = data.methods.find((each) => each.name === name);
  if (!method) return [title(`There is no method ${name} here`), make("p", {}, link("All methods", "methods"))];
  const open = method.text.filter((text) => text.startsWith("Resolution")), how = method.text.filter((text) => !open.includes(text));
  const parts = [title(name), ...(method.lead ? [make("p", { class: "lead" }, ...prose(method.lead))] : [])];
  const equations = [...new Set([method.lead, ...how].flatMap(formulas))];
  if (equations.length) parts.push(make("h3", {}, equations.length > 1 ? "Formulas" : "Formula"), ...equations.map((text) => make("code", { class: "formula" }, text)));
  if (how.length) parts.push(make("h3", {}, "How it works"), ...how.map((text) => make("p", { class: "prose" }, ...prose(text))));
  if (open.length) parts.push(make("h3", {}, "What its paper leaves open"), ...open.map((text) => make("p", { class: "prose" }, ...prose(text.replace(/^Resolutions?[^:]*: *(.)/, (_, first) => first.toUpperCase())))));
  if (method.checked) parts.push(make("h3", {}, "Checked against other code"), make("p", {}, method.checked));
  if (method.keys.length) parts.push(make("h3", {}, "Keys"), rows(`Keys of ${name}`, ["key", "default", "meaning"], method.keys.map(([key, value, meaning]) => [`algorithm.${key}`, value, meaning])));
  if (method.target) parts.push(make("h3", {}, "Source"), make("p", {}, make("code", {}, method.target)));
  if (method.target.startsWith("fgl_bench.")) parts.push(command(`fgl-bench show algorithm/${name.split("+")[0]}`));
  const found = [...places((row) => row.algorithm === name)], seen = new Set();
  if (!found.length) return [...parts, note("It has no run here.")];
  const once = found.filter(({ cell, row }) => !seen.has(cell.run + row.title) && seen.add(cell.run + row.title));
  for (const [task, cells] of byTask(found)) parts.push(make("h3", {}, `Its cells${task}`), rows(`Test scores of ${name}${task} as the tables show them`, ["table", "row", "setting", ...MODELS, "ours", "published", "run"],
    cells.map(({ paper, table, row, column, cell }) => [tableLink(placeOf(paper, table), paper, table), row.title, column.key, ...[...MODELS, "ours"].map((model) => cell[model] && cell[model].text), cell.published, link("open", "run", cell.run)])));
  const even = (run, model, what) => (isKnown((run.numbers[what] || {})[model]) ? run.numbers[what][model].toFixed(1) : "");
  for (const [task, runs] of byTask(once)) parts.push(make("h3", {}, `Clients and costs${task}`), rows(`How evenly the clients of ${name}${task} fare, in %, and what a run costs: MB up and down a seed, seconds for all seeds`,
    ["table", "row", "setting", "worst client, received", "median, received", "worst client, trained", "median, trained", "MB a seed", "client trips", "seconds"],
    runs.map(({ paper, table, row, column, run }) => [tableLink(placeOf(paper, table), paper, table), row.title, column.key, ...MODELS.flatMap((model) => ["worst", "median"].map((what) => even(run, model, what))), run.numbers.megabytes.toFixed(1), String(run.numbers.trips), run.numbers.seconds.toFixed(1)]), `${name} clients and costs`));
  const titles = titlesRun(), own = once[0].row.title, other = titles.find((each) => each !== own);
  if (other) parts.push(make("p", {}, link(`Compare ${own} with another`, "compare", own, titles.find((each) => shared(own, each).length) || other)));
  return parts;
}

// ---- two methods

let byTitle = null;  // the places of every row's title
function run() {
  if (byTitle) return byTitle;
  byTitle = new Map();
  for (const place of places()) {
    if (!byTitle.has(place.row.title)) byTitle.set(place.row.title, new Map());
    byTitle.get(place.row.title).set(`${place.paper.name}|${place.table.key}|${place.column.key}`, place);
  }
  return byTitle;
}
const titlesRun = () => [...run().keys()];
function shared(one, other) {
  if (one === other) return [];
  const seen = new Set(), found = [];
  for (const [key, a] of run().get(one)) {
    const b = run().get(other).get(key), runs = b && `${a.cell.run}|${b.cell.run}`;
    if (b && !seen.has(runs)) { seen.add(runs); found.push({ a, b, setting: `${placeOf(a.paper, a.table)}: ${a.column.key}` }); }
  }
  return found;
}
function difference({ a, b, setting }, model) {
  const scores = ({ run }) => new Map(run.numbers.seeds.map((seed, i) => [seed, run.numbers.scores[model][i]]).filter(([, score]) => isKnown(score)));
  const [x, y] = [scores(a), scores(b)], pairs = [...x].filter(([seed]) => y.has(seed)).map(([seed, score]) => score - y.get(seed)), count = pairs.length;
  const gap = count ? mean(pairs) : null, spread = count > 1 ? Math.sqrt(pairs.reduce((sum, pair) => sum + (pair - gap) ** 2, 0) / (count - 1) / count) : null;
  return { a, b, setting, count, gap, half: spread === null ? null : spread * data.quantiles[Math.min(count - 2, data.quantiles.length - 1)] };
}
const signed = (value) => { const near = Math.round(10 * value) / 10 || 0; return `${near > 0 ? "+" : ""}${near.toFixed(1)}`; };
function compareView(one, other) {
  const titles = titlesRun(), parts = [title("Two methods side by side")];
  if (titles.length < 2) return [...parts, make("p", {}, "A comparison needs runs of two methods.")];
  const sizes = titles.map((each) => run().get(each).size), first = titles.includes(one) ? one : titles[sizes.indexOf(Math.max(...sizes))];
  const partners = titles.filter((each) => shared(first, each).length).sort((a, b) => shared(first, b).length - shared(first, a).length);
  const second = titles.includes(other) && other !== first ? other : partners[0] || titles.find((each) => each !== first);
  const go = (a, b, id) => { history.replaceState(null, "", address("compare", a, b)); route(false); at(id).focus(); };
  const pick = (id, label, chosen, names, act) => make("label", {}, label, make("select", { id, onchange: (event) => act(event.target.value) }, ...names.map((name) => make("option", { value: name, selected: name === chosen }, name))));
  parts.push(make("form", { class: "pick", onsubmit: (event) => event.preventDefault() },
    pick("first", "Method", first, titles, (name) => go(name, second, "first")),
    pick("second", "against", second, partners.length ? partners.includes(second) ? partners : [second, ...partners] : [second], (name) => go(first, name, "second"))));
  const found = shared(first, second);
  if (!found.length) return [...parts, make("p", {}, "They have no setting in common.")];
  for (const [task, settings] of byTask(found, ({ a }) => a.run)) for (const model of MODELS) {
    const all = settings.map((each) => difference(each, model)).filter((each) => each.count);
    if (!all.length) continue;
    const apart = (each) => each.half !== null && Math.abs(each.gap) > each.half + 1e-9, score = (each) => mean(each.run.numbers.scores[model].filter(isKnown)).toFixed(1);
    const higher = all.filter((each) => each.gap > 0).length, lower = all.filter((each) => each.gap < 0).length;
    parts.push(make("h3", {}, `${model[0].toUpperCase()}${model.slice(1)} model${task}`),
      make("p", { class: "said" }, make("b", {}, first), ` is higher in ${higher}, `, make("b", {}, second), ` in ${lower} of ${plural(all.length, "setting")}; the interval of the difference excludes 0 in ${all.filter(apart).length}.`),
      forest(all, `${first} minus ${second}, points, ${model} model${task}`, apart),
      rows(`Test scores in %, and the mean difference over the common seeds with its 95 % t-interval; * excludes 0`, ["setting", first, second, "difference", "seeds"],
        all.map((each) => [each.setting, score(each.a), score(each.b), `${signed(each.gap)}${each.half === null ? "" : ` ± ${each.half.toFixed(1)}`}${apart(each) ? " *" : ""}`, String(each.count)]), `${first} against ${second} ${model}${task}`));
  }
  const side = ({ run }) => run.numbers, worst = (each, model) => (isKnown(side(each).worst[model]) ? side(each).worst[model].toFixed(1) : "");
  for (const [task, settings] of byTask(found, ({ a }) => a.run)) parts.push(make("h3", {}, `Clients and costs${task}`), rows("Worst client's test score in % (received / trained); MB up and down a seed; seconds for all seeds",
    ["setting", `${first}: worst client`, `${second}: worst client`, `${first}: MB`, `${second}: MB`, `${first}: seconds`, `${second}: seconds`],
    settings.map(({ a, b, setting }) => [setting, ...[a, b].map((each) => MODELS.map((model) => worst(each, model)).filter(Boolean).join(" / ")), ...[a, b].map((each) => side(each).megabytes.toFixed(1)), ...[a, b].map((each) => side(each).seconds.toFixed(1))]), `${first} against ${second} costs${task}`));
  parts.push(note("Each test stands alone: of twenty settings without a difference, about one interval excludes 0 by chance. Runs of one seed have no interval; with fewer than five, only large differences exclude 0."));
  return parts;
}
function forest(all, name, apart) {
  const wide = room(760), left = Math.min(300, wide * 0.42), high = 22 * all.length + 26, most = Math.floor(left / 6.6);
  const ends = all.flatMap((each) => [each.gap - (each.half || 0), each.gap + (each.half || 0), 0]);
  const [low, top] = [Math.min(...ends), Math.max(...ends)], x = (value) => left + 12 + (value - low) / (top - low || 1) * (wide - left - 28);
  const picture = make("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${name}: ${all.map((each) => `${each.setting} ${signed(each.gap)}`).join(", ")}` });
  for (const value of ticks(low, top, wide < 500 ? 3 : 6)) picture.append(make("line", { class: value ? "grid" : "axis", x1: x(value), x2: x(value), y1: 4, y2: high - 20 }), make("text", { x: x(value), y: high - 6, "text-anchor": "middle" }, String(value)));
  const one = new Set(all.map((each) => each.a.table)).size === 1;
  all.forEach((each, i) => {
    const y = 16 + 22 * i, half = each.half || 0, ink = apart(each) ? "var(--accent)" : "var(--quiet)", label = one ? each.a.column.key : each.setting;
    picture.append(make("text", { x: left, y: y + 4, "text-anchor": "end" }, label.length > most ? `\u2026${label.slice(1 - most)}` : label),
      make("line", { x1: x(each.gap - half), x2: x(each.gap + half), y1: y, y2: y, stroke: ink, "stroke-width": 2 }), make("circle", { cx: x(each.gap), cy: y, r: 4, fill: ink }, make("title", {}, `${each.setting}: ${signed(each.gap)}`)));
  });
  return make("figure", {}, picture, make("figcaption", {}, `${name}${one ? `; ${placeOf(all[0].a.paper, all[0].a.table)}` : ""}. Bars: 95 % t-intervals over the common seeds.`));
}

// ---- verdicts and search

function verdictsView(name) {
  const paper = data.papers.find((each) => each.name === name && each.verdicts.counts);
  if (!paper) return overview();
  const head = ["row", "model", "column", "printed", "ours", "difference from", "to", "verdict", "open setting"], parts = [title(`${paper.title}: verdicts on the printed cells`), note(data.about_verdicts)];
  for (const table of paper.tables) {
    const cells = paper.verdicts.cells.filter((each) => each[0] === table.key).map((each) => each.slice(1));
    if (cells.length) parts.push(make("h3", {}, tableLink(table.label, paper, table)), rows(`Printed cells whose registered run is stored: ${cells.length}`, head, cells, `${paper.title} ${table.key} verdicts`));
  }
  return parts;
}
function* index() {
  for (const method of data.methods) yield { kind: "Methods", text: `${method.name} ${method.about} ${method.lead}`, shown: [methodLink(method.name), make("span", { class: "note" }, " ", ...prose(method.about))] };
  for (const paper of data.papers) for (const table of paper.tables) {
    const kind = table.made ? "Tables" : "Tables that were not run", datasets = [...new Set(table.columns.map((column) => column.dataset))];
    yield { kind, text: `${paper.title} ${table.label} ${datasets.join(" ")} ${table.rows.map((row) => row.title).join(" ")}`, shown: [tableLink(paper.own ? table.title : `${paper.title}, ${table.label}`, paper, table), make("span", { class: "note" }, table.made ? ` ${table.made} of ${table.planned} cells run` : ` none of ${table.planned} cells run`)] };
  }
  for (const { paper, table, row, column, cell } of places()) yield { kind: "Runs", text: `${row.title} ${row.algorithm} ${column.key} ${cell.run} ${cell.command} ${placeOf(paper, table)}`, shown: [link(`${row.title}, ${column.key}`, "run", cell.run), make("span", { class: "note" }, ` ${placeOf(paper, table)}`)] };
}
function searchView(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean), groups = new Map(["Methods", "Tables", "Runs", "Tables that were not run"].map((kind) => [kind, []])), most = 50;
  for (const each of words.length ? index() : []) if (words.every((word) => each.text.toLowerCase().includes(word))) groups.get(each.kind).push(each);
  const count = [...groups.values()].reduce((sum, group) => sum + group.length, 0);
  at("status").textContent = `${count} found`;
  if (at("query").value !== query) at("query").value = query;
  return [title(`Search: ${query}`), ...(count ? [] : [make("p", {}, "Nothing found.")]), ...[...groups].filter(([, group]) => group.length).flatMap(([kind, group]) => [make("h3", {}, `${kind} (${group.length})`),
    make("ul", { class: "found" }, ...group.slice(0, most).map((each) => make("li", {}, ...each.shown))), ...(group.length > most ? [note(`and ${group.length - most} more`)] : [])])];
}
