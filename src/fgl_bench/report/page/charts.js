// Charts, drawn by Observable Plot.

const COLORS = ["var(--ink)", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#999999"];
const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const MOST_INTERVALS = 20; // in one figure
const MOST_NAMES = 8; // of dots that are not on the front
const MOST_LINES = 6; // drawn before a reader asks for more
const color = (index) => COLORS[index % COLORS.length];
const dash = (index) => DASHES[Math.floor(index / COLORS.length) % DASHES.length];
const available = (most) => Math.max(280, Math.min(most, document.documentElement.clientWidth - 44));

function megabytes(value) {
  const [amount, unit] = value >= 1000 ? [value / 1000, "GB"] : value >= 1 || value === 0 ? [value, "MB"] : [value * 1000, "kB"];
  return `${Number(amount.toPrecision(3))} ${unit}`;
}

/** At most five round numbers of MB between two: powers of ten, or with 2 and 5 between them. */
function byteTicks(low, high) {
  const powers = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6].map((power) => 10 ** power);
  const isInside = (tick) => tick >= low && tick <= high;
  const steps = powers.flatMap((power) => [1, 2, 5].map((factor) => factor * power));
  const between = steps.filter(isInside);
  if (low > 0 && between.length < 2) {
    const step = steps.findLast((each) => each <= (high - low) / 2) || high - low;
    return Array.from({ length: 6 }, (_, i) => (Math.ceil(low / step) + i) * step).filter(isInside);
  }
  if (low > 0 && between.length <= 5) return between;
  const isApart = (power) => power >= 1 && Math.log10(1 + power) > 0.15 * Math.log10(1 + high); // from 0
  const decades = powers.filter((power) => isInside(power) && (low > 0 || isApart(power)));
  const every = Math.ceil(decades.length / 4);
  const kept = decades.toReversed().filter((_, i) => i % every === 0);
  return low > 0 ? kept : [0, ...kept];
}

/** A figure of Plot's picture with a caption and a button that saves it. */
function figure(name, options, caption, attributes = {}) {
  const picture = Plot.plot({ ariaLabel: name, style: { fontSize: "12px", overflow: "visible" }, ...options });
  picture.setAttribute("role", "img");
  const title = name.split(":")[0];
  const saved = () => save(`${fileName(title)}.svg`, svgText(picture), "image/svg+xml");
  const download = button("svg", saved, { class: "save", "aria-label": `Download the figure ${title} as svg` });
  return element("figure", attributes, picture, element("figcaption", {}, caption, " ", download));
}

/** Means with intervals, one below the other. entries: ``{name, mean, low, high, strong, printed}``. */
function intervals(name, all, options) {
  const parts = [all.slice(0, MOST_INTERVALS), all.slice(MOST_INTERVALS)].filter((entries) => entries.length);
  const domain = options.domain || rangeOf(all, options.zero);
  const [first, others] = parts.map((entries) => intervalFigure(name, entries, { ...options, domain }));
  return others ? element("div", {}, first, folded(`${all.length - MOST_INTERVALS} more`, others)) : first;
}
function rangeOf(entries, withZero) {
  const ends = entries
    .flatMap(({ low, high, mean, printed }) => [low, high, mean, printed])
    .filter(isKnown)
    .concat(withZero ? [0] : []);
  const margin = 0.02 * (Math.max(...ends) - Math.min(...ends)) || 1;
  return [Math.min(...ends) - margin, Math.max(...ends) + margin];
}
function intervalFigure(name, entries, { label, caption, width = 760, domain, zero = false, attributes = {} }) {
  const wide = available(width);
  const room = Math.min(wide * 0.46, 20 + 6.8 * Math.max(...entries.map((entry) => entry.name.length)));
  const letters = Math.floor(room / 6.8) - 1;
  const paint = (entry) => (entry.strong === false ? "var(--quiet)" : "var(--accent)");
  const short = (text) => (text.length > letters ? `…${text.slice(1 - letters)}` : text);
  return figure(
    `${name}: ${entries.map((entry) => `${entry.name} ${entry.mean.toFixed(2)}`).join(", ")}`,
    {
      width: wide,
      height: 24 * entries.length + 50,
      marginLeft: room,
      marginBottom: 40,
      x: { label, domain, grid: true, labelAnchor: "center", labelArrow: "none", ticks: 5 },
      y: { label: null, domain: entries.map((entry) => entry.name), tickFormat: short, tickSize: 0 },
      marks: [
        zero ? Plot.ruleX([0], { stroke: "var(--quiet)" }) : null,
        Plot.ruleY(entries, { y: "name", x1: "low", x2: "high", stroke: paint, strokeWidth: 2, clip: true }),
        Plot.dot(entries, { y: "name", x: "mean", r: 4, fill: paint }),
        Plot.dot(
          entries.filter((entry) => isKnown(entry.printed)),
          { y: "name", x: "printed", r: 4, symbol: "diamond", stroke: "currentColor", fill: "var(--ground)" },
        ),
        Plot.tip(
          entries,
          Plot.pointerY({ y: "name", x: "mean", title: (entry) => entry.title || `${entry.name}: ${entry.mean.toFixed(2)}` }),
        ),
      ],
    },
    caption,
    attributes,
  );
}

/** Lines with bands. lines: ``{name, index, points: [[x, y, half]]}``. */
function lineChart(lines, { across, up, format = String, caption, type = "linear", dots = false }) {
  const points = lines.flatMap((line) => line.points.map(([x, y, half]) => ({ x, y, half, name: line.name })));
  const counted = lines.flatMap(({ points: all }) => (all.length > 2 ? all.slice(1) : all)); // not the initial model
  const ends = (sign) => counted.map(([, y, half]) => y + sign * (half || 0));
  const [low, high] = [Math.max(0, Math.min(...ends(-1))), Math.max(...ends(1))];
  const margin = Math.max(1, 0.04 * (high - low));
  const most = Math.max(...counted.map(([, y]) => y)) <= 100 && low < 100 ? 100 : Infinity; // a score has no band above 100 %
  const domain = [Math.max(0, low - margin), Math.min(most, high + margin)];
  const bounded = (value) => Math.max(domain[0], Math.min(domain[1], value));
  const band = ({ index, points: all }) =>
    Plot.areaY(all, {
      x: "0",
      y1: ([, y, half]) => bounded(y - half),
      y2: ([, y, half]) => bounded(y + half),
      fill: color(index),
      fillOpacity: 0.13,
    });
  const curve = ({ index, points: all }) =>
    Plot.lineY(all, {
      x: "0",
      y: ([, y]) => bounded(y),
      stroke: color(index),
      strokeWidth: 2,
      strokeDasharray: dash(index),
      className: "curve",
      marker: dots ? "circle" : null,
    });
  const lasts = lines.map((line) => `${line.name} ends at ${line.points.at(-1)[1].toFixed(1)}`).join(", ");
  const hasBands = points.some((point) => point.half);
  return figure(
    `${up} against ${across}: ${lasts}`,
    {
      width: available(760),
      height: 360,
      marginLeft: 48,
      marginBottom: 40,
      x: { label: across, type, tickFormat: format, labelAnchor: "center", labelArrow: "none", ticks: available(760) < 500 ? 4 : 7 },
      y: { label: up, domain, grid: true, labelArrow: "none" },
      marks: [
        ...lines.map(band),
        ...lines.map(curve),
        Plot.tip(
          points,
          Plot.pointer({
            x: "x",
            y: "y",
            title: ({ name, x, y, half }) => `${name}\n${y.toFixed(1)}${half ? ` ± ${half.toFixed(1)}` : ""} at ${format(x)}`,
          }),
        ),
      ],
    },
    [caption, hasBands ? "Bands: 95 % t-intervals over the seeds." : ""].filter(Boolean).join(". "),
  );
}
const COSTS = { trips: { across: "client trips", format: String }, bytes: { across: "sent and received per seed", format: megabytes } };
const curveLine = (name, index, curve, model, cost = "trips") => ({
  name,
  index,
  points: curve[cost].map((spent, i) => [
    cost === "bytes" ? spent / 1e6 : spent,
    100 * curve[model][i],
    100 * (curve[`${model}_half`]?.[i] || 0),
  ]),
});

function legendLine(index) {
  const picture = Plot.plot({
    width: 28,
    height: 12,
    margin: 0,
    x: { axis: null, domain: [0, 1] },
    y: { axis: null, domain: [0, 1] },
    marks: [
      Plot.line(
        [
          [0, 0.5],
          [1, 0.5],
        ],
        { stroke: color(index), strokeWidth: 2.5, strokeDasharray: dash(index) },
      ),
    ],
  });
  picture.setAttribute("aria-hidden", "true");
  picture.classList.add("key");
  return picture;
}
/** Check boxes of lines: the first few are drawn, the others are one click away. lines: ``{name, ...}``, the most interesting first. */
function chosenLines(lines, draw) {
  const shown = new Set(lines.slice(0, MOST_LINES).map((line) => line.name));
  const picture = element("div");
  const redraw = () =>
    picture.replaceChildren(shown.size ? draw(lines.filter((line) => shown.has(line.name))) : element("p", {}, "No line is chosen."));
  const item = (line) =>
    element(
      "li",
      {},
      element(
        "label",
        {},
        element("input", {
          type: "checkbox",
          checked: shown.has(line.name),
          onchange: (event) => (event.target.checked ? shown.add(line.name) : shown.delete(line.name), redraw()),
        }),
        legendLine(line.index),
        line.name,
      ),
    );
  const keys = (some) => element("ul", { class: "keys", "aria-label": "Lines drawn" }, ...some.map(item));
  const others = lines.slice(MOST_LINES);
  redraw();
  return [
    lines.length > 1 ? keys(lines.slice(0, MOST_LINES)) : null,
    others.length ? folded(`${others.length} more`, keys(others)) : null,
    picture,
  ];
}

/** Score against bytes; the Pareto front is named. entries: ``{name, bytes, score}``. */
function scatter(title, entries, front, sign, up) {
  const points = entries.map((entry) => ({ ...entry, megabytes: entry.bytes / 1e6, onFront: front.has(entry.name) }));
  const isNamed = (point) => point.onFront || points.length <= MOST_NAMES;
  const [least, most] = [Math.min, Math.max].map((end) => end(...points.map((point) => point.megabytes)));
  const [left, right] = least > 0 ? [least / 1.5, most * 1.5] : [0, Math.max(most, 10) * 1.4];
  const [lowest, highest] = [Math.min, Math.max].map((end) => end(...points.map((point) => point.score)));
  let free = Infinity; // names stand one below the other
  for (const point of points.filter(isNamed).toSorted((a, b) => b.score - a.score)) {
    point.labelAt = Math.min(point.score, free - 0.065 * (highest - lowest));
    free = point.labelAt;
  }
  const scale = (value) => Math.log10(least > 0 ? value : 1 + value);
  const width = available(460);
  const shareOf = (point) => (scale(point.megabytes) - scale(left)) / (scale(right) - scale(left));
  const isRight = (point) => shareOf(point) > 0.5;
  const letters = (point) => Math.floor((Math.max(shareOf(point), 1 - shareOf(point)) * (width - 60)) / 6.8) - 2; // that fit beside the dot
  const short = (point) => (point.name.length > letters(point) ? `${point.name.slice(0, letters(point) - 1)}…` : point.name);
  const label = (right) =>
    Plot.text(
      points.filter((point) => isNamed(point) && isRight(point) === right),
      {
        x: "megabytes",
        y: "labelAt",
        text: short,
        dx: right ? -9 : 9,
        dy: -7,
        textAnchor: right ? "end" : "start",
        stroke: "var(--ground)",
        fill: "currentColor",
      },
    );
  const dots = (onFront, look) =>
    Plot.dot(
      points.filter((point) => point.onFront === onFront),
      { x: "megabytes", y: "score", ...look },
    );
  return figure(
    `score against bytes, ${title}`,
    {
      width,
      height: 300,
      marginLeft: 44,
      marginBottom: 40,
      marginTop: 26,
      marginRight: 16,
      x: {
        type: least > 0 ? "log" : "symlog",
        label: "sent and received per seed",
        ticks: byteTicks(left, right),
        tickFormat: megabytes,
        domain: [left, right],
        labelAnchor: "center",
        labelArrow: "none",
      },
      y: { label: up, grid: true, nice: true, reverse: sign < 0, labelArrow: "none", ticks: 5 },
      marks: [
        dots(false, { r: 4, fill: "var(--quiet)", fillOpacity: 0.6 }),
        dots(true, { r: 6, fill: "var(--accent)" }),
        label(true),
        label(false),
        Plot.tip(
          points,
          Plot.pointer({
            x: "megabytes",
            y: "score",
            title: (point) => `${point.name}\n${point.score.toFixed(1)} at ${megabytes(point.megabytes)}`,
          }),
        ),
      ],
    },
    `${title}. Large${points.every(isNamed) ? "" : " and named"}: the Pareto front of score and bytes.`,
    { class: "inline" },
  );
}

// ---- one run: matrices of clients and their labels

const unpack = (matrix) => Uint8Array.from(atob(matrix.data), (letter) => letter.charCodeAt(0));
function heatmap(matrix, title) {
  const levels = Array.from(unpack(matrix), (level) => (level === 255 ? NaN : (level * matrix.max) / 250));
  const { clients } = matrix;
  return figure(
    `${title}: ${clients} by ${clients} clients, largest entry ${matrix.max}`,
    {
      width: 200,
      height: 200,
      margin: 6,
      x: { axis: null },
      y: { axis: null, reverse: true },
      color: { scheme: "viridis", domain: [0, matrix.max] },
      marks: [Plot.raster(levels, { width: clients, height: clients, imageRendering: "pixelated" })],
    },
    `${title}, 0 (dark) to ${matrix.max}`,
    { class: "inline" },
  );
}
function network(matrix, title) {
  const { clients } = matrix;
  const onCircle = (i) => [Math.sin((2 * Math.PI * i) / clients), Math.cos((2 * Math.PI * i) / clients)];
  const edges = Array.from(unpack(matrix), (level, i) => ({
    level,
    from: onCircle(i % clients),
    to: onCircle(Math.floor(i / clients)),
    own: i % (clients + 1) === 0,
  })).filter(({ level, own }) => level && level !== 255 && !own);
  const scale = { axis: null, domain: [-1.1, 1.1] };
  return figure(
    title,
    {
      width: 200,
      height: 200,
      margin: 6,
      x: scale,
      y: scale,
      marks: [
        Plot.arrow(edges, {
          y1: (edge) => edge.from[1],
          x1: (edge) => edge.from[0],
          x2: (edge) => edge.to[0],
          y2: (edge) => edge.to[1],
          bend: true,
          headLength: 4,
          inset: 5,
          stroke: "var(--accent)",
          strokeOpacity: 0.5,
          strokeWidth: (edge) => 0.4 + edge.level / 125,
        }),
        Plot.dot(
          Array.from({ length: clients }, (_, i) => onCircle(i)),
          { x: "0", y: "1", r: 4, fill: "currentColor" },
        ),
      ],
    },
    title,
    { class: "inline network" },
  );
}
function labelCounts(counts) {
  const circles = counts.flatMap((column, client) => column.map((count, label) => ({ client, label, count }))).filter(({ count }) => count);
  return figure(
    `nodes of ${counts[0].length} classes held by ${counts.length} clients; a circle's area is their number`,
    {
      width: 80 + 26 * counts.length,
      height: 60 + 22 * counts[0].length,
      marginBottom: 36,
      x: { type: "point", label: "client", labelAnchor: "center", labelArrow: "none" },
      y: { type: "point", label: "class", labelArrow: "none" },
      r: { range: [0, 11] },
      marks: [
        Plot.dot(circles, {
          x: "client",
          y: "label",
          r: "count",
          fill: "#0072B2",
          title: ({ client, label, count }) => `client ${client}, class ${label}: ${count} nodes`,
        }),
      ],
    },
    "",
  );
}
