"""A page of made-up papers, and a tab of a browser that shows it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fgl_bench.papers.plan import Cell, Paper, Row, Table, columns
from fgl_bench.papers.published import Printed
from fgl_bench.report.html import page
from fgl_bench.report.shown import Source
from fgl_bench.results.thinned import packed
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
    return Source(paper, cells, in_place, PUBLISHED, verdicts, files)


def two_papers(**more) -> str:
    other = source()
    return page([other, Source(Paper("q", "Paper two", TABLES[:1], first=()), other.cells, {}, Printed([]))], **more)


def data_of(html: str) -> dict:
    text = re.search(r'<script type="text/plain" id="data">(.*?)</script>', html, re.DOTALL)[1]
    return json.loads(gzip.decompress(base64.b64decode(text)))


@contextmanager
def tab_of(browser, file: Path, where: str = "", phone: bool = False):
    """The page in a tab; a failure where it says anything on the console, or asks for anything elsewhere."""
    context = browser.new_context(
        viewport={"width": 360, "height": 740} if phone else {"width": 1280, "height": 900},
        has_touch=phone,
        color_scheme="dark" if phone else "light",
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
