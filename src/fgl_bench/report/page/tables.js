// Tables that sort by their headings, and files of tables and figures.

const numberOrText = (text) => (Number.isNaN(Number.parseFloat(text)) ? text.toLowerCase() : Number.parseFloat(text));

/** Orders two cells of a column: empty ones come last. */
function compareCells(one, other, descending) {
  const [a, b] = [one, other].map((cell) => cell.dataset.value ?? cell.textContent.trim());
  if (!a || !b) return !a - !b;
  const [x, y] = [numberOrText(a), numberOrText(b)];
  const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
  return descending ? -order : order;
}

/**
 * A table that sorts by its headings.
 *
 * columns: ``{head, group, cell}``; ``cell(row)`` returns a text, a node or nothing. Columns without content are left out.
 * rows: objects; those with ``parent`` are folded below the row with that ``key``, those with ``below`` stay under a line.
 * texts: the table as a file by extension, if it is not to be read from the page. limit: rows shown at first.
 */
function dataTable({ caption, columns, rows, name = caption, limit = 30, texts = null, filter = false }) {
  const cells = rows.map((row) => columns.map((column) => column.cell(row)));
  const filled = columns.map((_, i) => i).filter((i) => i === 0 || cells.some((line) => isKnown(line[i])));
  const lines = rows.map((row, r) => ({
    row,
    node: tableRow(
      row,
      filled.map((i) => cells[r][i]),
    ),
  }));
  const alignment = filled.map((i) => alignmentOf(cells.map((line) => line[i])));
  lines.forEach(({ node }) => [...node.cells].forEach((cell, i) => alignment[i] && cell.classList.add(...alignment[i])));
  const body = element("tbody");
  const state = { sorted: null, descending: true, opened: new Set(), limit, filter: "" };

  function inOrder(group) {
    const { sorted, descending } = state;
    return sorted === null ? group : group.toSorted((a, b) => compareCells(a.node.cells[sorted], b.node.cells[sorted], descending));
  }
  function withVariants(line) {
    const variants = lines.filter(({ row }) => row.parent && row.parent === line.row.key);
    return state.opened.has(line.row.key) ? [line, ...inOrder(variants)] : [line];
  }
  function draw() {
    const isListed = ({ row, node }) => !row.parent && node.textContent.toLowerCase().includes(state.filter);
    const listed = lines.filter(isListed);
    const ranked = inOrder(listed.filter(({ row }) => !row.below));
    const below = inOrder(listed.filter(({ row }) => row.below));
    below.forEach(({ node }, i) => node.classList.toggle("first-below", i === 0 && ranked.length > 0));
    const shown = [...ranked, ...below];
    body.replaceChildren(
      ...shown
        .slice(0, state.limit)
        .flatMap(withVariants)
        .map(({ node }) => node),
    );
    more.hidden = shown.length <= state.limit;
    more.textContent = `Show all ${shown.length} rows`;
  }
  function sortBy(i, heading) {
    state.descending = state.sorted === i ? !state.descending : i !== 0;
    state.sorted = i;
    draw();
    heads.forEach((head, j) => head.setAttribute("aria-sort", j !== i ? "none" : state.descending ? "descending" : "ascending"));
    announce(`sorted by ${heading}, ${state.descending ? "descending" : "ascending"}`);
  }
  function foldButtons() {
    for (const { row, node } of lines) {
      const count = lines.filter((other) => other.row.parent && other.row.parent === row.key).length;
      if (!count) continue;
      const toggle = button(
        `+${count}`,
        () => {
          if (!state.opened.delete(row.key)) state.opened.add(row.key);
          toggle.setAttribute("aria-expanded", state.opened.has(row.key));
          draw();
        },
        { class: "fold", "aria-expanded": "false", "aria-label": `${plural(count, "variant")} of ${node.cells[0].textContent}` },
      );
      node.cells[0].append(" ", toggle);
    }
  }

  const more = button("", () => ((state.limit = Infinity), draw()), { class: "more" });
  const heads = filled.map((column, i) => {
    const { head, group } = columns[column];
    const label = group ? [hiddenText(`${group} `), head] : [head];
    const sort = element(
      "button",
      { type: "button", onclick: () => sortBy(i, head || "name") },
      ...label,
      head ? null : hiddenText("name"),
    );
    return element("th", { scope: "col", "aria-sort": "none", class: alignment[i]?.join(" ") }, sort);
  });
  const table = element(
    "table",
    {},
    element("caption", {}, element("span", {}, caption)),
    element("thead", {}, groupRow(filled.map((i) => columns[i].group)), element("tr", {}, ...heads)),
    body,
  );
  foldButtons();
  draw();
  const search =
    filter &&
    element("input", {
      type: "search",
      "aria-label": `Filter ${name}`,
      placeholder: "filter rows",
      oninput: (event) => ((state.filter = event.target.value.toLowerCase()), draw()),
    });
  return element(
    "div",
    { class: "tabled" },
    search || null,
    element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 }, table),
    more,
    downloads(name, (ending) =>
      texts
        ? texts[ending]
        : tableText(
            table,
            ending,
            lines.map(({ node }) => node),
          ),
    ),
  );
}
function tableRow(row, [first, ...others]) {
  const header = element("th", { scope: "row" }, first);
  return element(
    "tr",
    { class: [row.parent && "variant", row.own && "own"].filter(Boolean).join(" ") || null },
    header,
    ...others.map((cell) => (cell instanceof HTMLTableCellElement ? cell : element("td", {}, cell))),
  );
}
/** Classes of a column: texts are left-aligned, long ones wrap. */
function alignmentOf(values) {
  const isCell = (value) => value instanceof HTMLTableCellElement;
  const texts = values.map((value) => (isCell(value) ? "" : (value?.textContent ?? value))).filter((text) => typeof text === "string" && text);
  const isNumeric = values.some(isCell) || texts.some((text) => /^[-+]?[\d.]/.test(text));
  if (isNumeric) return null;
  return texts.some((text) => text.length > 32) ? ["words", "long"] : ["words"];
}
/** The headings above groups of columns; nothing without groups. */
function groupRow(groups) {
  if (!groups.some(isKnown)) return null;
  const spans = [];
  for (const group of groups) {
    if (group && spans.at(-1)?.group === group) spans.at(-1).count += 1;
    else spans.push({ group, count: 1 });
  }
  return element(
    "tr",
    {},
    ...spans.map(({ group, count }) => element(group ? "th" : "td", group ? { scope: "colgroup", colspan: count } : {}, group)),
  );
}
/** A table of texts or nodes: headings and lines. */
const simpleTable = (caption, heads, lines, more = {}) =>
  dataTable({ caption, columns: heads.map((head, i) => ({ head, cell: (line) => line[i] })), rows: lines, ...more });

// ---- files

const TYPES = { csv: "text/csv", md: "text/markdown", tex: "text/x-tex" };
const fileName = (text) =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60) || "table";

function save(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  announce(`${name} is downloaded`);
}
function downloads(name, text) {
  const file = (ending) =>
    button(ending, () => save(`${fileName(name)}.${ending}`, text(ending), TYPES[ending]), {
      "aria-label": `Download ${name} as ${ending}`,
    });
  return element("p", { class: "downloads" }, "Download ", ...Object.keys(TYPES).map(file));
}
function cellText(cell) {
  const copy = cell.cloneNode(true);
  copy.querySelectorAll(".hidden, .fold").forEach((each) => each.remove());
  return copy.textContent.trim().replace(/\s+/g, " ");
}
/** A table of the page as text, with all its rows. */
function tableText(table, ending, body) {
  const [head, ...lines] = [table.tHead.rows[table.tHead.rows.length - 1], ...body].map((row) => [...row.cells].map(cellText));
  return { csv: csvText, md: markdownText, tex: latexText }[ending](head, lines);
}
function csvText(head, lines) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return [head, ...lines].map((line) => line.map(quoted).join(",") + "\n").join("");
}
function markdownText(head, lines) {
  const [first, ...others] = [head, ...lines].map((line) => `| ${line.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |\n`);
  return first + "|---".repeat(head.length) + "|\n" + others.join("");
}
function latexText(head, lines) {
  const special = { "\\": "\\textbackslash{}", "±": "$\\pm$", "†": "$\\dagger$", "^": "\\^{}", "~": "\\~{}" };
  const escaped = (text) => text.replace(/[\\%_&#$^~{}±†]/g, (letter) => special[letter] || `\\${letter}`);
  const [first, ...others] = [head, ...lines].map((line) => `${line.map(escaped).join(" & ")} \\\\\n`);
  const start = `% needs \\usepackage{booktabs}\n\\begin{tabular}{l${"c".repeat(head.length - 1)}}\n\\toprule\n`;
  return `${start}${first}\\midrule\n${others.join("")}\\bottomrule\n\\end{tabular}\n`;
}

const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "stroke-opacity", "font", "text-anchor"];

/** A picture as a file of its own, with the colors that the page gives it. */
function svgText(picture) {
  const copy = picture.cloneNode(true);
  const originals = picture.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    PAINT.forEach((name) => node.removeAttribute(name));
    node.setAttribute("style", PAINT.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  });
  copy.querySelectorAll("style").forEach((node) => node.remove());
  copy.setAttribute("style", `background:${getComputedStyle(document.documentElement).backgroundColor}`);
  return '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(copy);
}
