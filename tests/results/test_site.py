"""The check of the built site (`make docs` runs it) finds what needs a network or leads nowhere."""

from __future__ import annotations

import pytest

from fgl_bench.cli.commands import about
from fgl_bench.config.choices import GROUPS, choices, path_of
from scripts.site.check import problems

PAGES = {
    "good.html": '<p>text</p><a href="sub/other.html#part">there</a><a href="https://example.org/">elsewhere</a>',
    "sub/other.html": '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
    "asks.html": '<script src="https://example.org/shim.js"></script>',
    "fails.html": "<script>missing()</script>",
    "leads.html": '<a href="nowhere.html">nowhere</a>',
    "index.html": "<p>a page without a search</p>",
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
    assert ["search" in line for line in said["index.html"]] == [True]
    assert {name for name, lines in said.items() if not lines} == {"good.html", "sub/other.html", "404.html"}


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_says_what_it_is(group):
    for choice in choices(group):
        text = about(path_of(group, choice, ()))
        assert text and "@package" not in text and not text.endswith(","), choice
