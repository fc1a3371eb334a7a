"""A page of made-up papers, and a tab of a browser that shows it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fgl_bench.leaderboard.record import write_record
from fgl_bench.papers.plan import Cell, Paper, Row, Table, columns
from fgl_bench.papers.published import Printed
from fgl_bench.report.html import page
from fgl_bench.report.own_runs import own_runs
from fgl_bench.report.shown import Source
from fgl_bench.results.frame import complete_runs
from fgl_bench.results.thinned import packed
from tests.results.boards import PROTOCOL
from tests.results.boards import cell as board_cell
from tests.results.stored_runs import store
from tests.results.test_analysis import PUBLISHED, cell

ROWS = (
    Row("a", "Method A", "fedavg", published="a"), Row("b", "Method B </script>", "fedgta", published="b"),
    Row("c", "Method C", "local", published="c"), Row("d", "Method D", "no_such_method"),
)  # fmt: skip
TABLES = (
    Table("3", "p/table3", "accuracy in %", "accuracy", columns(("cora", "pubmed")), ROWS),
    Table("7", "p/table7", "trips", "trips", columns(("cora",)), ROWS[:3]),
    Table("figure4", "p/table3", "ablation", "curves", columns(("cora",)), ROWS[:2]),
)
TRIPS = [0, 20, 40, 60]
PICTURES = {
    "curve": {
        "trips": TRIPS, "received": [0.1, 0.5, 0.7, 0.8], "received_half": [0.02] * 4,
        "trained": [0.2, 0.6, 0.7, 0.7], "trained_half": [0.01] * 4,
    },
    "matrices": {"similarity": {"40": packed(np.eye(3))}, "mixing": {"20": packed(np.full((3, 3), 1 / 3))}},
    "label_counts": [[3, 1], [0, 9], [5, 5]],
    "scenario": "decentralized", "finished": "2026-01-02T03:04:05",
}  # fmt: skip


CLAIM = {
    "paper": "p", "table": "3", "backbone": "gcn", "columns": "2", "methods": "3", "trips": "False", "best_printed": "2", "best_ours": "1",
    "printed_margin": "1.5", "margin": "-0.75", "low": "-1.25", "high": "-0.25", "beaten": "1", "winner": "fedgta",
    "tau": "0.5", "tau_low": "0.1", "tau_high": "0.9",
}  # fmt: skip


def source() -> Source:
    seconds = {"seconds": {"total": 60.0, "train": 50.0}}
    made = [
        cell("a", "cora", [0.80, 0.82], [1880, 1960], **PICTURES, **seconds),
        cell("b", "cora", [0.60, 0.62], [20, None], **PICTURES, **seconds),
        cell("c", "cora", [0.70, 0.76], [None, None], **seconds),
        cell("a", "pubmed", [0.50, 0.50], **seconds),
        cell("b", "pubmed", [0.60, 0.60], **seconds),
    ]
    cells = [Cell(t.key, r, c, (f"dataset={c.dataset}", f"algorithm={r.algorithm}")) for t in TABLES for r in t.rows for c in t.columns]
    by_name = {each["config_hash"]: each for each in made}
    in_place = {cell.key: by_name[name] for cell in cells if (name := f"{cell.row.key}-{cell.column.key}") in by_name}
    heads = ("table", "row", "title", "model", "column", "printed_text", "ours", "low", "high", "verdict", "open")
    lines = (
        ("3", "a", "Method A", "received", "cora", "80.5 ± 0.3", "81.000", "-1.234", "1.0", "equivalent", ""),
        ("3", "b", "Method B </script>", "trained", "cora", "70.0 ± 1.0", "51.000", "-20.1", "-17.9", "under-specified", "its step"),
        ("3", "c", "Method C", "received", "pubmed", "60.0", "", "", "", "not run", ""),
    )
    verdicts = [dict(zip(heads, line, strict=True)) for line in lines]
    files = {"a-cora": Path("cells/a.json"), "b-cora": Path("runs/x y/b")}
    paper = Paper("p", "Paper one", TABLES, first=())
    return Source(
        paper, cells, in_place, PUBLISHED, verdicts, files, claims=[CLAIM, {**CLAIM, "table": "7", "trips": "True", "tau_low": ""}]
    )


def two_papers(**more) -> str:
    other = source()
    return page([other, Source(Paper("q", "Paper two", TABLES[:1], first=()), other.cells, {}, Printed([]))], **more)


def whole_report(folder: Path) -> str:
    """Own runs of eight methods in four settings, two papers and a leaderboard, stored in ``folder``."""
    methods = ("local", "fedavg", "fedprox", "fedgta", "scaffold", "ditto", "fedper", "fedsa_gcl")
    for number, method in enumerate(methods):
        for clients in (5, 10):
            for dataset in ("cora", "pubmed"):
                store(folder / "runs", method, dataset, per_seed=(0.5 + number / 20, 0.52 + number / 20, 0.6), clients=clients)
    for entry in ("fedavg", "fedgta", "scaffold", "local", "global"):
        for column in ("cora", "webkb"):
            write_record(folder / "leaderboard" / PROTOCOL.folder, board_cell(entry, column, 0.5 + len(entry) / 50))
    own = own_runs(folder / "runs", complete_runs(folder / "runs"))
    return page([own, source()], out=folder / "report.html", leaderboard=folder / "leaderboard")


def data_of(html: str) -> dict:
    text = re.search(r'<script type="text/plain" id="data">(.*?)</script>', html, re.DOTALL)[1]
    return json.loads(gzip.decompress(base64.b64decode(text)))


@contextmanager
def tab_of(browser, file: Path, where: str = "", phone: bool = False, scheme: str = "light"):
    """The page in a tab without network; a failure where it says anything on the console, or asks for anything elsewhere."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844} if phone else {"width": 1440, "height": 900},
        has_touch=phone,
        color_scheme=scheme,
        offline=True,
    )
    tab, said = context.new_page(), []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda sent: None if sent.url.startswith(("file:", "data:", "blob:")) else said.append(sent.url))
    tab.goto(file.as_uri() + where)
    tab.wait_for_selector("html[data-ready]", state="attached")
    yield tab
    assert said == [], "an error, or a request to elsewhere"
    context.close()


LOW_CONTRAST = """() => {
    const channels = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
    const linear = (value) => (value <= 10.31 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const ground = (node) => {
        for (let each = node; each; each = each.parentElement) {
            const color = channels(getComputedStyle(each).backgroundColor);
            if (color.length === 3 || color[3] > 0) return color;
        }
        return [255, 255, 255];
    };
    const found = new Map();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const node = texts.currentNode.parentElement;
        if (!texts.currentNode.textContent.trim() || !node.checkVisibility({ visibilityProperty: true })) continue;
        const style = getComputedStyle(node);
        const [one, other] = [luminance(channels(node instanceof SVGElement ? style.fill : style.color)), luminance(ground(node))];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) found.set(`${node.tagName}.${node.getAttribute("class")}`, `${ratio.toFixed(2)}, ${node.textContent.trim()}`);
    }
    return [...found];
}"""
"""Texts with less contrast than WCAG AA asks for (4.5 to 1)."""

NAMELESS = """() => [...document.querySelectorAll('button, select, input, a, svg[role=img]')].filter((node) =>
    !(node.textContent.trim() || node.getAttribute('aria-label') || (node.labels && node.labels.length))).length"""
"""Controls and pictures without a name."""

OVER = "() => [...document.querySelectorAll('th, td')].filter((node) => node.scrollWidth > node.clientWidth + 1).length"
CUT = """() => [...document.querySelectorAll("figure svg text")].filter((node) => {
    const [text, picture] = [node, node.ownerSVGElement].map((each) => each.getBoundingClientRect());
    return text.width && (text.left < picture.left - 1 || text.right > picture.right + 1);
}).length"""
"""Labels of a figure that begin or end outside of it."""


def faults(tab) -> list[str]:
    """What is wrong with the view that is shown: too wide, low contrast, nameless controls, tables without captions, empty parts."""
    counts = {
        "wider than the screen": "document.documentElement.scrollWidth - innerWidth",
        "controls without a name": f"({NAMELESS})()",
        "headings without scope": "document.querySelectorAll('th:not([scope])').length",
        "tables without a caption": "document.querySelectorAll('table:not(:has(caption))').length",
        "empty parts": "[...document.querySelectorAll('#view table, #view ul, #view p')].filter((node) => !node.textContent.trim()).length",
        "texts over the next cell": f"({OVER})()",
        "texts outside of their picture": f"({CUT})()",
        "headings missing": "1 - document.querySelectorAll('#view > h2').length",
        "figures without a picture": "[...document.querySelectorAll('figure')].filter((node) => !node.querySelector('svg > *')).length",
    }
    found = [f"{name}: {count}" for name, script in counts.items() if (count := tab.evaluate(script)) > 0]
    return found + [f"contrast {ratio} in {where}" for where, ratio in tab.evaluate(LOW_CONTRAST)]
