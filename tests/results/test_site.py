"""The check of the built site (`make docs` runs it) finds what needs a network or leads nowhere."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fgl_bench.cli.commands import about
from fgl_bench.config.choices import GROUPS, choices, path_of
from fgl_bench.results.render import display_names
from scripts.site.check import problems

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "good.html": '<p>text</p><a href="sub/other.html#part">there</a><a href="https://example.org/">elsewhere</a>',
    "sub/other.html": '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
    "asks.html": '<script src="https://example.org/shim.js"></script>',
    "fails.html": "<script>missing()</script>",
    "leads.html": '<a href="nowhere.html">nowhere</a>',
    "marked.html": "<main><p>one of :data:<code>METRICS</code>. - and **more</p></main>",
    "cell.html": '<table><tr><td style="max-width: 50px; white-space: nowrap">wider than its cell</td><td>x</td></tr></table>',
    "formula.html": '<div class="formula" style="overflow: auto"><p style="width: 2000px">x</p></div>',
    "wide.html": '<p style="width: 600px">wider than a phone</p>',
    "index.html": '<main><p>a page without a search</p><p style="color: #aaa">pale</p></main>',
    "404.html": '<a href="/absolute.html">only a server knows it</a>',
}


def test_a_page_that_needs_a_network_or_leads_nowhere_is_found(browser, tmp_path, monkeypatch):
    for name, text in PAGES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"<!doctype html><title>x</title>{text}", encoding="utf-8")
    monkeypatch.setattr("scripts.site.check.SECONDS", 0.1)
    found = list(problems(browser, tmp_path))
    said = {name: [line for line in found if line.startswith(name)] for name in PAGES}
    assert any("asks for https://example.org/shim.js" in line for line in said["asks.html"])
    assert any("missing is not defined" in line for line in said["fails.html"])
    assert [line.rpartition("/")[2] for line in said["leads.html"]] == ["nowhere.html, which is missing"]
    assert ["390" in line for line in said["wide.html"]] == [True]
    assert [line.rpartition(" ")[2] for line in said["marked.html"]] == [":data:", "a", "**m"]
    assert [line.rpartition(": ")[2] for line in said["cell.html"]] == ["wider than its cell"] * 2, "on a screen and on a phone"
    assert [line.partition(" ")[2] for line in said["formula.html"]] == ["has a formula that is wider than the text"]
    assert sorted(line.split()[1] for line in said["index.html"]) == ["has", "has", "the", "the"], said["index.html"]
    assert sum("2.32" in line and "pale" in line for line in said["index.html"]) == 2
    assert {name for name, lines in said.items() if not lines} == {"good.html", "sub/other.html", "404.html"}


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_says_what_it_is(group):
    for choice in choices(group):
        text = about(path_of(group, choice, ()))
        assert text and "@package" not in text and not text.endswith(","), choice


def test_every_method_and_dataset_has_a_name_and_a_reference():
    """The entry of docs/references.bib has what a line of text needs; no entry is left over."""
    entries = re.findall(r"^@\w+\{(\w+),\n(.*?)^\}$", (ROOT / "docs/references.bib").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    used = set()
    for group, file in (("algorithm", "methods"), ("dataset", "datasets")):
        facts = yaml.safe_load((ROOT / f"scripts/site/{file}.yaml").read_text(encoding="utf-8"))
        assert {name for name in facts if "title" in facts[name] or name in display_names()} == set(choices(group))
        used |= {fact["paper"] for fact in facts.values() if "paper" in fact}
        assert group != "dataset" or all("license" in fact and "source" in fact for name, fact in facts.items() if name != "custom")
    assert used == {key for key, _ in entries} and len(entries) == len(used)
    for key, body in entries:
        fields = dict(re.findall(r"^  (\w+) = \{(.+)\},$", body, re.MULTILINE))
        assert {"title", "author", "year"} <= fields.keys() and {"booktitle", "journal", "howpublished"} & fields.keys(), key
        assert fields["year"] in key, key


def test_columns_of_numbers_are_right_aligned(monkeypatch):
    pytest.importorskip("latex2mathml", reason="the site needs the extra docs")
    monkeypatch.syspath_prepend(ROOT / "scripts/site")
    hooks = importlib.import_module("hooks")
    lines = ("| 1 | +1.5* | 3 of 4 | 2,708 | 0.1 ± 0.2 | two | 3 x |", "| 2 |  | 1 of 4 | -1 | 12.5 [1, 2] | 4 | 5 |")
    table = "\n".join(["| a | b | c | d | e | f | g |", "|---|---|---|---|---|---|---|", *lines, ""])
    assert hooks.TABLE.sub(hooks.aligned, table).splitlines()[1] == "|---|---:|---:|---:|---:|---|---|"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_built_site_opens_without_network_on_a_screen_and_a_phone(browser, tmp_path, monkeypatch):
    """No error, nothing wider than the window, contrast in both schemes, the glossary first for "staleness" (scripts/site/check.py)."""
    for module in ("mkdocs", "latex2mathml", "material"):
        pytest.importorskip(module, reason="the site needs the extra docs")
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("execute: true", "execute: false")  # the notebook: make docs
    config = ROOT / f"mkdocs.{tmp_path.name}.yml"
    config.write_text(menu, encoding="utf-8")
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.setenv("DISABLE_MKDOCS_2_WARNING", "true")
    try:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", config, "--site-dir", tmp_path / "site"]
        subprocess.run(command, cwd=ROOT, check=True)
    finally:
        config.unlink()
    found = [path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")]
    methods = [f"reference/algorithm/{name}.html" for name in ("fedavg", "fedgta", "fedssa", "adafgl", "majority")]
    datasets = [f"reference/dataset/{name}.html" for name in ("cora", "custom", "ogbn_arxiv", "mutag")]
    chosen = {name for name in found if name.count("/") == 0 or name.startswith("guides/")} | {*methods, *datasets, "reference/keys.html"}
    assert len(chosen & set(found)) == len(chosen) > 40
    assert not list(problems(browser, tmp_path / "site", chosen))  # make docs looks at all pages
    page = (tmp_path / "site/reference/algorithm/fedgta.html").read_text(encoding="utf-8")
    for part in (
        "<title>FedGTA - fgl-bench",
        "<math ",
        "arxiv.org/abs/2401.11755",
        "li2023fedgta",
        'class="gp"',
    ):
        assert part in page, part
    assert 'rel="next"' in page and "md-nav__link--active" in page, "a method is in the menu"
    assert 'rel="next"' in (tmp_path / "site/tutorial.html").read_text(encoding="utf-8")
    assert "edge homophily" in (tmp_path / "site/reference/dataset/cora.html").read_text(encoding="utf-8")
