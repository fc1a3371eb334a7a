// Curves, heat maps, networks and label counts.
const line = (name, index, curve, model) => ({
  name, index,
  points: curve.trips.map((trip, i) => [trip, 100 * curve[model][i], curve[model + "_half"] ? 100 * curve[model + "_half"][i] : 0]),
});
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) || 1;
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(8)));
}
function frame(width, height, low, high, top, bottom, across, up, title) {
  const [left, right, above, below] = [52, 14, 12, 40];
  const x = (value) => left + (value - low) / (high - low || 1) * (width - left - right);
  const y = (value) => height - below - (value - bottom) / (top - bottom || 1) * (height - above - below);
  const picture = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const value of ticks(bottom, top, 5)) picture.append(make("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }), make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  for (const value of ticks(low, high, width < 500 ? 3 : 6)) picture.append(make("line", { class: "axis", x1: x(value), x2: x(value), y1: height - below, y2: height - below + 4 }), make("text", { x: x(value), y: height - below + 17, "text-anchor": "middle" }, String(value)));
  picture.append(make("line", { class: "axis", x1: left, x2: width - right, y1: height - below, y2: height - below }),
    make("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, across),
    make("text", { transform: `translate(13 ${height / 2 - 14}) rotate(-90)`, "text-anchor": "middle" }, up));
  return { picture, x, y };
}
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const room = (most) => Math.max(300, Math.min(most, document.documentElement.clientWidth - 48));  // so that text keeps its size on a phone
const stroke = (index) => make("svg", { viewBox: "0 0 28 12", "aria-hidden": "true", class: "key" }, make("line", { x1: 0, x2: 28, y1: 6, y2: 6, stroke: colour(index), "stroke-width": 2.5, "stroke-dasharray": dash(index) }));
function chart(lines, across, up, named, where) {
  const values = lines.flatMap((each) => (each.points.length > 1 ? each.points.slice(1) : each.points).map((point) => point[1]));
  const [bottom, top] = [Math.min(...values), Math.max(...values)];
  const margin = Math.max(1, 0.06 * (top - bottom)), last = Math.max(...lines.flatMap((each) => each.points.map((point) => point[0])));
  const ends = lines.map((each) => `${each.name} ends at ${each.points.at(-1)[1].toFixed(1)}`).join(", ");
  const { picture, x, y } = frame(room(760), 360, 0, last, Math.min(100, top + margin), Math.max(0, bottom - margin), across, up, `${up} against ${across}: ${ends}`);
  const clip = (value) => Math.max(Math.max(0, bottom - margin), Math.min(Math.min(100, top + margin), value));
  for (const each of lines) {
    const upper = each.points.map(([t, mean, half]) => [x(t), y(clip(mean + half))]), lower = each.points.map(([t, mean, half]) => [x(t), y(clip(mean - half))]);
    if (each.points.some((point) => point[2])) picture.append(make("path", { class: "band", d: path(upper) + path(lower.reverse()).replace("M", "L") + "Z", fill: colour(each.index), opacity: 0.14 }));
  }
  for (const each of lines) picture.append(make("path", { class: "curve", d: path(each.points.map(([t, mean]) => [x(t), y(clip(mean))])), fill: "none", stroke: colour(each.index), "stroke-width": 1.8, "stroke-dasharray": dash(each.index) }, make("title", {}, each.name)));
  return make("figure", {}, picture, make("figcaption", {}, where ? `${where}. ` : "", ...(named ? lines.flatMap((each) => [stroke(each.index), ` ${each.name} `]) : []), lines.some((each) => each.points.some((point) => point[2])) ? "Bands: 95 % t-intervals over the seeds." : ""));
}
function curves() {
  const column = table().columns.find((each) => each.key === state.column);
  const model = kind() === "trained" ? "trained" : "received";
  const all = column ? table().rows.map((row, index) => ({ row, index, run: runOf(cellOf(row, column)) })).filter(({ run }) => run && run.curve && run.curve[model]) : [];
  at("curves-part").hidden = !all.length;
  if (!all.length) return;
  const lines = all.filter(({ row }) => !state.hidden.has(row.key)).map(({ row, index, run }) => line(row.title, index, run.curve, model));
  const keys = make("ul", { class: "keys", "aria-label": "Methods drawn" }, ...all.map(({ row, index }) => make("li", {}, make("label", {},
    make("input", { type: "checkbox", "data-key": row.key, checked: !state.hidden.has(row.key), onchange: (event) => {
      event.target.checked ? state.hidden.delete(row.key) : state.hidden.add(row.key);
      curves();
      [...at("curves").querySelectorAll("input")].find((each) => each.dataset.key === row.key).focus();
    } }),
    stroke(index), row.title))));
  at("curves").replaceChildren(all.length > 1 ? keys : "", lines.length ? chart(lines, "client trips", `test score of the ${model} model in %`, false, column.key) : make("p", {}, "No method chosen."));
  savable(at("curves"));
}
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const unpack = (matrix) => Uint8Array.from(atob(matrix.data), (letter) => letter.charCodeAt(0));
function shade(level) {
  if (level === 255) return [190, 190, 190];
  const place = level / 250 * 4, low = Math.min(3, Math.floor(place));
  return VIRIDIS[low].map((value, i) => Math.round(value + (VIRIDIS[low + 1][i] - value) * (place - low)));
}
function heatmap(matrix, title) {
  const canvas = make("canvas", { width: matrix.clients, height: matrix.clients, role: "img", "aria-label": `${title}: ${matrix.clients} by ${matrix.clients} clients, largest entry ${matrix.max}` });
  const context = canvas.getContext("2d"), image = context.createImageData(matrix.clients, matrix.clients);
  unpack(matrix).forEach((level, i) => image.data.set([...shade(level), 255], 4 * i));
  context.putImageData(image, 0, 0);
  return make("figure", { class: "inline" }, canvas, make("figcaption", {}, `${title}, 0 (dark) to ${matrix.max}`));
}
function network(matrix, title) {
  const size = 190, count = matrix.clients, levels = unpack(matrix);
  const place = (i) => [size / 2 + 80 * Math.sin(2 * Math.PI * i / count), size / 2 - 80 * Math.cos(2 * Math.PI * i / count)];
  const picture = make("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": title, class: "network" });
  levels.forEach((level, i) => {
    const [row, column] = [Math.floor(i / count), i % count];
    if (!level || level === 255 || row === column) return;
    const [from, to] = [place(column), place(row)];
    picture.append(make("path", { d: `M${from.join(" ")} Q${size / 2} ${size / 2} ${to.join(" ")}`, fill: "none", stroke: "var(--accent)", "stroke-width": 0.4 + 2 * level / 250, opacity: 0.5 }));
  });
  for (let i = 0; i < count; i++) picture.append(make("circle", { cx: place(i)[0], cy: place(i)[1], r: 4, fill: "var(--ink)" }));
  return make("figure", { class: "inline" }, picture, make("figcaption", {}, title));
}
function labels(counts) {
  const [wide, high] = [counts.length, counts[0].length], most = Math.max(...counts.flat(), 1);
  const picture = make("svg", { viewBox: `0 0 ${60 + 26 * wide} ${40 + 22 * high}`, role: "img", "aria-label": `nodes of ${high} classes held by ${wide} clients; a circle's area is their number` });
  counts.forEach((column, client) => column.forEach((count, label) => {
    if (count) picture.append(make("circle", { cx: 60 + 26 * client, cy: 14 + 22 * label, r: Math.max(0.8, 11 * Math.sqrt(count / most)), fill: "#0072B2" }, make("title", {}, `client ${client}, class ${label}: ${count} nodes`)));
  }));
  for (let label = 0; label < high; label++) picture.append(make("text", { x: 36, y: 18 + 22 * label, "text-anchor": "end" }, String(label)));
  picture.append(make("text", { x: 40 + 13 * wide, y: 34 + 22 * high, "text-anchor": "middle" }, "client"));
  return make("figure", {}, picture);
}

