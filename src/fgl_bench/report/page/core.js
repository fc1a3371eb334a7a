"use strict";
// What all views use. Everything shown is taken from the data in the page; texts go in as text, never as markup.
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["var(--ink)", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#999999"];
const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const SIGNS = { equivalent: "=", inconclusive: "~", different: "\u2260", "under-specified": "?", contradictory: "!" };
const MODELS = ["received", "trained"];
const state = { paper: 0, table: 0, dataset: "", model: "received", sort: null, down: true, column: "", hidden: new Set(), all: false };
let data = null;

function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "text", "circle", "title", "rect"].includes(name);
  const node = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const hiddenText = (text) => make("span", { class: "hidden" }, text);
const options = (select, entries, chosen) =>
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value, selected: String(value) === String(chosen) }, text)));
const address = (...parts) => "#" + parts.map(encodeURIComponent).join("/");
const link = (text, ...parts) => make("a", { href: address(...parts) }, text);
const note = (...children) => make("p", { class: "note" }, ...children);
const colour = (index) => COLOURS[index % COLOURS.length];
const dash = (index) => DASHES[Math.floor(index / COLOURS.length) % DASHES.length];
const isKnown = (value) => value !== null && value !== undefined && value !== "";
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const plural = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;

// A text with ``code`` in it, and the equations among that code.
const CODE = /``(.+?)``|`([^`]+)`/;
const prose = (text) => text.split(CODE).map((part, i) => (part === undefined ? null : i % 3 ? make("code", {}, part) : part));
const formulas = (text) => text.split(CODE).filter((part, i) => i % 3 && part && / (=|<-|:=) |\|\|/.test(part));

// A table; columns that are empty from top to bottom are left out. Cells are texts or nodes.
function rows(caption, head, body, name) {
  const kept = head.map((_, i) => i === 0 || body.some((row) => isKnown(row[i])));
  const pick = (row) => row.filter((_, i) => kept[i]);
  const cell = (value) => (isKnown(value) ? value : "");
  const words = head.map((_, i) => !body.some((row) => typeof row[i] === "number" || (typeof row[i] === "string" && /^[-+]?[\d.]/.test(row[i]))));
  const pickWords = pick(words), long = pick(head.map((_, i) => body.some((row) => typeof row[i] === "string" && row[i].length > 24)));
  const left = (i) => (pickWords[i] ? (long[i] ? "words long" : "words") : null);
  const table = make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...pick(head).map((text, i) => make("th", { scope: "col", class: left(i) }, text)))),
    make("tbody", {}, ...body.map((row) => { const [first, ...rest] = pick(row); return make("tr", {}, make("th", { scope: "row" }, cell(first)), ...rest.map((value, i) => make("td", { class: left(i + 1) }, cell(value)))); })));
  return make("div", { class: "tabled" }, make("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, table), downloads(name || caption, (ending) => written(table, ending)));
}

// ---- files

function save(name, content, type) {
  const url = content instanceof Blob ? URL.createObjectURL(content) : URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  at("status").textContent = `${name} is downloaded`;
}
const fileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "table";
const TYPES = { csv: "text/csv", md: "text/markdown", tex: "text/x-tex" };
function downloads(name, text) {
  return make("p", { class: "downloads" }, "Download ", ...Object.keys(TYPES).map((ending) =>
    make("button", { type: "button", "aria-label": `Download ${name} as ${ending}`, onclick: () => save(`${fileName(name)}.${ending}`, text(ending), TYPES[ending]) }, ending)));
}
// A table of the page as text. Tables of runs come with texts of their own, which say more.
function written(table, ending) {
  const text = (cell) => { const copy = cell.cloneNode(true); copy.querySelectorAll(".hidden").forEach((each) => each.remove()); return copy.textContent.trim().replace(/\s+/g, " "); };
  const lines = [...table.rows].map((row) => [...row.cells].map(text));
  if (ending === "csv") return lines.map((line) => line.map((each) => (/[",\n]/.test(each) ? `"${each.replaceAll('"', '""')}"` : each)).join(",") + "\n").join("");
  if (ending === "md") {
    const [head, ...body] = lines.map((line) => `| ${line.map((each) => each.replaceAll("|", "\\|")).join(" | ")} |\n`);
    return head + "|---".repeat(lines[0].length) + "|\n" + body.join("");
  }
  const special = { "\\": "\\textbackslash{}", "±": "$\\pm$", "†": "$\\dagger$", "^": "\\^{}", "~": "\\~{}" };
  const tex = (each) => each.replace(/[\\%_&#$^~{}±†]/g, (letter) => special[letter] || `\\${letter}`);
  const [head, ...body] = lines.map((line) => `${line.map(tex).join(" & ")} \\\\\n`);
  return `% needs \\usepackage{booktabs}\n\\begin{tabular}{l${"c".repeat(lines[0].length - 1)}}\n\\toprule\n${head}\\midrule\n${body.join("")}\\bottomrule\n\\end{tabular}\n`;
}
const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font", "text-anchor"];
function standalone(picture) {
  const copy = picture.cloneNode(true), own = picture.querySelectorAll("*"), ground = getComputedStyle(document.documentElement).backgroundColor;
  copy.querySelectorAll("*").forEach((node, i) => { const style = getComputedStyle(own[i]); PAINT.forEach((name) => node.removeAttribute(name)); node.setAttribute("style", PAINT.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";")); });
  const [, , width, height] = picture.getAttribute("viewBox").split(" ");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(make("rect", { width, height, fill: ground }));
  return '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(copy);
}
// A button below every figure that has none yet.
function savable(root) {
  for (const figure of root.querySelectorAll("figure:not(:has(.save))")) {
    const picture = figure.querySelector("svg[role=img], canvas");
    if (!picture) continue;
    const name = (picture.getAttribute("aria-label") || "figure").split(":")[0], ending = picture.tagName === "CANVAS" ? "png" : "svg";
    const write = () => (ending === "svg" ? save(`${fileName(name)}.svg`, standalone(picture), "image/svg+xml") : picture.toBlob((blob) => save(`${fileName(name)}.png`, blob)));
    figure.append(make("button", { type: "button", class: "save", "aria-label": `Download the figure ${name} as ${ending}`, onclick: write }, ending));
  }
}

// ---- what there is

const papers = () => data.papers.filter((paper) => state.all || paper.tables.some((table) => table.made));
const tablesOf = (paper) => paper.tables.filter((table) => state.all || table.made);
const runOf = (cell) => (cell && cell.run ? data.runs[cell.run] : null);
const placeOf = (paper, table) => (paper.own ? table.heading : `${paper.title}, ${table.label.split(":")[0]}`);

// Groups by the task of their run, which a caption names: results of different tasks never share a table or a chart.
function byTask(found, runIn = ({ run }) => run) {
  const groups = new Map();
  for (const each of found) {
    const task = runIn(each).numbers.task || "";
    groups.set(task, [...(groups.get(task) || []), each]);
  }
  return groups;
}

// Every run in every place of a table that shows it.
function* places(wanted = () => true) {
  for (const paper of data.papers) for (const table of paper.tables) {
    if (!table.made) continue;
    for (const row of table.rows) {
      if (!wanted(row)) continue;
      for (const column of table.columns) {
        const cell = table.cells[`${row.key}|${column.key}`], run = runOf(cell);
        if (run) yield { paper, table, row, column, cell, run };
      }
    }
  }
}
