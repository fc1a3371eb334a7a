// Ranks, fronts and fairness of the table that is shown.
function ranking(ranks) {
  const names = Object.keys(ranks.ranks), values = Object.values(ranks.ranks), [row, above] = [20, 8];
  const width = room(760), left = Math.min(300, width / 2), base = above + row * names.length;
  const x = (rank) => left + 8 + (rank - 1) / (names.length - 1 || 1) * (width - left - 24);
  const picture = make("svg", { viewBox: `0 0 ${width} ${base + 24}`, role: "img", "aria-label": "average ranks: " + names.map((name, i) => `${name} ${values[i].toFixed(2)}`).join(", ") });
  picture.append(make("line", { class: "axis", x1: left, x2: width, y1: base, y2: base }));
  for (const value of ticks(1, names.length, 8)) if (value >= 1) picture.append(make("line", { class: "axis", x1: x(value), x2: x(value), y1: base, y2: base + 4 }), make("text", { x: x(value), y: base + 18, "text-anchor": "middle" }, String(value)));
  names.forEach((name, i) => {
    const y = above + row * i + row / 2, [low, high] = ranks.intervals[name] || [values[i], values[i]];
    picture.append(make("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, `${name} ${values[i].toFixed(2)}`), make("line", { x1: x(low), x2: x(high), y1: y, y2: y, stroke: "var(--quiet)", "stroke-width": 2 }),
      make("circle", { cx: x(values[i]), cy: y, r: 4, fill: "var(--ink)" }, make("title", {}, `${name}: ${values[i].toFixed(2)}, 95 % ${low.toFixed(2)} to ${high.toFixed(2)}`)));
  });
  return make("figure", { class: "wide" }, picture, make("figcaption", {}, `Average ranks over ${ranks.columns} columns` + (ranks.graphs > 1 ? ` of ${ranks.graphs} graphs; lines: 95 % bootstrap over graphs.` : " of one graph.")));
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

