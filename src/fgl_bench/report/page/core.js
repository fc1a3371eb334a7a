"use strict";
// Elements, addresses, selectors, and access to the data. Texts are inserted as text, never as markup.

const MODELS = ["received", "trained"];
const SIGNS = { equivalent: "=", inconclusive: "~", different: "≠", "under-specified": "?", contradictory: "!" };
const route = { parts: [""], options: new URLSearchParams() };
let data = null;

const byId = (id) => document.getElementById(id);
const isKnown = (value) => value !== null && value !== undefined && value !== "";
const distinct = (values) => [...new Set(values)];
const paired = (names) => names.map((name) => [name, name]);
const plural = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
const capitalized = (text) => text[0].toUpperCase() + text.slice(1);
const announce = (text) => (byId("status").textContent = text);

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter(isKnown));
  return node;
}
const note = (...children) => element("p", { class: "note" }, ...children);
const hiddenText = (text) => element("span", { class: "hidden" }, text);
const viewHeading = (text) => element("h2", { id: "view-heading", tabindex: -1 }, text);
const folded = (summary, ...children) => element("details", {}, element("summary", {}, summary), ...children);
const button = (text, onclick, attributes = {}) => element("button", { type: "button", onclick, ...attributes }, text);

// ---- addresses: #view/part/part?option=value

const address = (...parts) => "#" + parts.map(encodeURIComponent).join("/");
const link = (text, ...parts) => element("a", { href: address(...parts) }, text);
const tableLink = (text, paper, table) => link(text, paper.name, table.key);
const methodLink = (name, text = name) => (methodNamed(name) ? link(text, "method", name) : text);

function readAddress() {
  const [path, options] = location.hash.slice(1).split("?");
  route.parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  route.options = new URLSearchParams(options);
}

/** Sets options of the view in its address and shows it again; the control that was used keeps the focus. */
function choose(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (isKnown(value)) route.options.set(name, value);
    else route.options.delete(name);
  }
  const options = String(route.options);
  history.replaceState(null, "", address(...route.parts) + (options && `?${options}`));
  const focused = document.activeElement.id;
  render();
  if (focused) byId(focused)?.focus();
}

// ---- controls

const controls = (...children) => element("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, ...children);

/** A list of ``[value, text]`` to choose from, whose choice is the option ``name`` of the address. */
function selector(label, name, entries, chosen, change = (value) => choose({ [name]: value })) {
  if (entries.length < 2) return null;
  const options = entries.map(([value, text]) => element("option", { value, selected: value === chosen }, text));
  return element("label", {}, label, element("select", { id: `choose-${name}`, onchange: (event) => change(event.target.value) }, options));
}
function modelChoice(models, chosen) {
  if (models.length < 2) return null;
  const radio = (name) =>
    element("input", {
      type: "radio",
      name: "model",
      id: `model-${name}`,
      checked: name === chosen,
      onchange: () => choose({ model: name }),
    });
  return element("fieldset", {}, element("legend", {}, "Model"), ...models.map((name) => element("label", {}, radio(name), name)));
}
function checkbox(label, name, checked, change = (value) => choose({ [name]: value ? "yes" : null })) {
  const box = element("input", { type: "checkbox", id: `check-${name}`, checked, onchange: (event) => change(event.target.checked) });
  return element("label", { class: "check" }, box, label);
}
const option = (name, allowed, otherwise = allowed[0]) => (allowed.includes(route.options.get(name)) ? route.options.get(name) : otherwise);

// ---- text with ``code`` in it, and the equations among that code

const CODE = /``(.+?)``|`([^`]+)`/;
const prose = (text) => text.split(CODE).map((part, i) => (part && i % 3 ? element("code", {}, part) : part));
const formulas = (text) => text.split(CODE).filter((part, i) => i % 3 && part && / (=|<-|:=) |\|\|/.test(part));

// ---- the data

const ownRuns = () => data.papers.find((paper) => paper.own);
const printedPapers = () => data.papers.filter((paper) => !paper.own);
const runOf = (cell) => (cell?.run ? data.runs[cell.run] : null);
const cellOf = (table, row, column) => table.cells[`${row.key}|${column.key}`];
const methodNamed = (name) => data.methods.find((method) => method.name === name);
const positionOf = (paper, table) => (paper.own ? table.heading : `${paper.title}, ${table.label.split(":")[0]}`);
const isReference = (algorithm) => data.references.includes(algorithm);

/** Every run in every table that shows it. */
function* placements(isWanted = () => true) {
  for (const paper of data.papers) {
    for (const table of paper.tables.filter((each) => each.made)) {
      for (const row of table.rows.filter(isWanted)) {
        for (const column of table.columns) {
          const cell = cellOf(table, row, column);
          const run = runOf(cell);
          if (run) yield { paper, table, row, column, cell, run };
        }
      }
    }
  }
}

/** Groups by the task of a run, which captions name: results of different tasks never share a table or a chart. */
function byTask(entries, runIn = ({ run }) => run) {
  const groups = new Map();
  for (const entry of entries) {
    const task = runIn(entry).numbers.task || "";
    groups.set(task, [...(groups.get(task) || []), entry]);
  }
  return groups;
}
