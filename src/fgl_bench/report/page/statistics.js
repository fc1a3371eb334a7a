// Ranks, fronts and fairness of the table that is shown.
function ranking(ranks) {
  const names = Object.keys(ranks.ranks), values = Object.values(ranks.ranks), half = Math.ceil(names.length / 2);
  const [width, left, right, base] = [980, 310, 670, 50], deep = base + 16 + 10 * ranks.groups.length;
  const x = (rank) => left + (rank - 1) / (names.length - 1 || 1) * (right - left);
  const picture = make("svg", { viewBox: `0 0 ${width} ${deep + 20 + 20 * half}`, role: "img", "aria-label": "average ranks: " + names.map((name, i) => `${name} ${values[i].toFixed(2)}`).join(", ") });
  picture.append(make("line", { class: "axis", x1: left, x2: right, y1: base, y2: base }), make("line", { x1: left, x2: x(1 + ranks.difference), y1: 18, y2: 18, stroke: "var(--ink)", "stroke-width": 1.5 }), make("text", { x: left, y: 12 }, `critical difference ${ranks.difference.toFixed(2)}`));
  names.forEach((_, i) => picture.append(make("line", { class: "axis", x1: x(i + 1), x2: x(i + 1), y1: base - 4, y2: base }), make("text", { x: x(i + 1), y: base - 8, "text-anchor": "middle" }, String(i + 1))));
  ranks.groups.forEach((group, i) => picture.append(make("line", { x1: x(ranks.ranks[group[0]]) - 5, x2: x(ranks.ranks[group.at(-1)]) + 5, y1: base + 10 + 10 * i, y2: base + 10 + 10 * i, stroke: "var(--ink)", "stroke-width": 4, "stroke-linecap": "round" })));
  names.forEach((name, i) => {
    const first = i < half, y = deep + 14 + 20 * (first ? i : names.length - 1 - i), edge = first ? left - 10 : right + 10;
    picture.append(make("path", { d: `M${x(values[i])} ${base}V${y}H${edge}`, fill: "none", stroke: "var(--quiet)" }), make("text", { x: first ? edge - 4 : edge + 4, y: y + 4, "text-anchor": first ? "end" : "start" }, `${name} ${values[i].toFixed(2)}`));
  });
  return make("figure", { class: "wide" }, picture, make("figcaption", {}, `Average ranks over ${ranks.columns} columns; a bar joins methods that do not differ significantly (Nemenyi, 5 %).` + (ranks.friedman === null ? "" : ` Friedman p = ${ranks.friedman.toPrecision(2)}.`)));
}
function against(points, key, sign) {
  const entries = Object.entries(points), index = new Map(table().rows.map((row, i) => [row.title, i]));
  const scores = entries.map(([, point]) => sign * point[1]), logs = entries.map(([, point]) => Math.log10(1 + point[0] / 1e6));
  const { picture, x, y } = frame(room(560), 320, 0, Math.max(...logs, 1) * 1.05, Math.max(...scores) + 1, Math.min(...scores) - 1, "log10(1 + MB moved a seed)", "score", `score against bytes, ${key}`);
  const front = new Set(table().statistics[kind()].columns[key]?.front || []);
  const names = [];  // of the front, one below the other where they would overlap
  entries.forEach(([name, point], i) => {
    picture.append(make("circle", { cx: x(logs[i]), cy: y(scores[i]), r: front.has(name) ? 6 : 4, fill: colour(index.get(name)), stroke: front.has(name) ? "var(--ink)" : "none" }, make("title", {}, `${name}: ${(point[0] / 1e6).toFixed(1)} MB, ${(sign * point[1]).toFixed(1)}`)));
    if (front.has(name)) names.push({ name, x: x(logs[i]), y: y(scores[i]) - 6 });
  });
  let above = -Infinity;
  for (const each of names.sort((a, b) => a.y - b.y)) {
    above = each.y = Math.max(each.y, above + 13);
    const right = each.x > room(560) / 2;
    picture.append(make("text", { x: each.x + (right ? -9 : 9), y: each.y, "text-anchor": right ? "end" : "start" }, each.name));
  }
  return make("figure", { class: "inline" }, picture, make("figcaption", {}, `${key}: what is moved and what is reached; named: the Pareto front`));
}
function statistics() {
  const found = (table().statistics || {})[kind()], parts = [];
  const keys = columns().map((column) => column.key);
  const shown = found ? Object.entries(found.columns).filter(([key]) => keys.includes(key)) : [];
  at("statistics-part").hidden = !shown.length;
  if (!shown.length) return;
  parts.push(rows("By column", ["column", "best", "worse at 5 %", "of", "tau with the paper", "front"], shown.map(([key, column]) => [key, column.best,
    String(column.others.filter((other) => other.adjusted !== null && other.adjusted < 0.05).length), String(column.others.length), column.agreement ? column.agreement.tau.toFixed(2) : "", column.front.join(", ")]), `${table().heading} statistics`));
  if (found.ranks) parts.push(ranking(found.ranks));
  const known = Object.entries(found.fairness), percent = (value) => (value === undefined || value === null ? "" : (100 * value).toFixed(1));
  if (known.length) parts.push(rows("Over clients, in %: means over seeds and the ranked columns", ["method", "worst", "lowest tenth", "median", "best", "std"], known.map(([title, part]) => [title, ...["worst", "tenth", "median", "best", "std"].map((name) => percent(part[name]))]), `${table().heading} clients`));
  for (const [key] of shown) if (Object.keys(found.points[key] || {}).length > 1) parts.push(against(found.points[key], key, table().measure === "trips" ? -1 : 1));
  parts.push(note(isPrinted() ? data.about : data.about.split(/ (?=tau:|Front:)/).filter((text) => !/^tau:/.test(text)).join(" ")));
  at("statistics").replaceChildren(...parts);
  savable(at("statistics"));
}

