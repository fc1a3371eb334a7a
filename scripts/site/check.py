"""Open every page of the built site from the disk, without network.

    python scripts/site/check.py build/site

Fails if a page asks another host for something, reports an error, links to a file that is missing, scrolls sideways on a screen or a
phone, cuts a formula on a screen, has text over the next cell of a table, or shows markup; if text has too little contrast, if the search
does not show the right page first, or fails for a choice.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

LOCAL = ("file:", "data:", "blob:")
LINKS = "links => links.map(each => each.href)"
WIDTHS = (1440, 390)  # CSS pixels of a screen and of a phone
CONTRAST = 4.5  # WCAG 2.1, level AA; 3 for text of 24 pixels or more
FIRST = {"staleness": "glossary.html", "FedAvg": "reference/algorithm/fedavg.html"}  # the first result of a search
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = "() => [...document.querySelectorAll('.formula')].filter(each => each.scrollWidth > each.clientWidth + 1).length"
OVER = """() => [...document.querySelectorAll("th, td")].filter(each => each.scrollWidth > each.clientWidth + 1)
  .slice(0, 3).map(each => each.textContent.trim().slice(0, 40))"""
MARKUP = r"""() => {
  const main = document.querySelector("main")?.cloneNode(true);
  main?.querySelectorAll("pre, code, script, .highlight, .clipboard-copy-txt").forEach(each => each.remove());
  return main?.textContent.match(/:(?:class|func|meth|mod|attr|data):|\*\*\w|\. - \w|\]\(/g) || [];
}"""
"""Roles of docstrings, bold type, list items in a paragraph and links that stand on a page as they were written."""
PALE = """least => {
  const numbers = color => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, below) => { const a = top.length > 3 ? top[3] : 1; return below.map((c, i) => a * top[i] + (1 - a) * c); };
  const behind = each => each ? over(numbers(getComputedStyle(each).backgroundColor), behind(each.parentElement)) : [255, 255, 255];
  const found = {};
  for (const each of document.querySelectorAll("main *, header *")) {
    const text = [...each.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join("");
    const style = getComputedStyle(each);
    const seen = each.checkVisibility({opacityProperty: true, visibilityProperty: true});
    if (!text || !seen || each.closest(".md-search, svg, math")) continue;
    const ground = behind(each), color = over(numbers(style.color), ground);
    const [low, high] = [light(color), light(ground)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio >= (parseFloat(style.fontSize) >= 24 ? 3 : least)) continue;
    found[style.color] = `${ratio.toFixed(2)} of "${text.slice(0, 30)}" (${style.color})`;
  }
  return Object.values(found);
}"""
QUERY = """word => {
  const input = document.querySelector(".md-search__input");
  if (input) { input.value = word; input.dispatchEvent(new Event("keyup")); }
}"""
SECONDS = 60.0  # that a search may take
SEARCHED = ("index.html", "guides/index.html", "reference/algorithm/fedavg.html")  # a page of each depth


def browser_path() -> str | None:
    """Chromium of the system."""
    paths = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return os.environ.get("FGL_BENCH_CHROMIUM") or next(filter(None, paths), None)


def pages(site: Path) -> list[Path]:
    """All pages but the one that a server shows in the place of a missing one."""
    return sorted(path for path in site.rglob("*.html") if path != site / "404.html")


def problems(browser: Any, site: Path, only: Collection[str] = ()) -> Iterator[str]:
    """Yield one line per problem of the site's pages, or of those that are named."""
    context = browser.new_context(offline=True)
    tab, messages = context.new_page(), []
    tab.on("request", lambda sent: None if sent.url.startswith(LOCAL) else messages.append(f"asks for {sent.url}"))
    tab.on("console", lambda message: messages.append(f"{message.type}: {message.text}") if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: messages.append(f"error: {error}"))
    for path in pages(site):
        name = path.relative_to(site).as_posix()
        if only and name not in only:
            continue
        messages.clear()
        tab.goto(path.as_uri())
        targets = {unquote(urlsplit(link).path) for link in tab.eval_on_selector_all("a[href]", LINKS) if link.startswith("file:")}
        messages += [f"links to {target}, which is missing" for target in sorted(targets) if not Path(target).exists()]
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            messages += [f"has text over the next cell of a table at {width}: {text}" for text in tab.evaluate(OVER)]
            if (extra := tab.evaluate(WIDE)) > 0:
                messages.append(f"is {extra} pixels wider than a window of {width}")
        tab.set_viewport_size({"width": WIDTHS[0], "height": 900})
        messages += ["has a formula that is wider than the text"] * (tab.evaluate(CUT) > 0)
        messages += [f"shows the markup {text}" for text in dict.fromkeys(tab.evaluate(MARKUP))]
        if name in SEARCHED:
            for dark in (False, True):
                tab.evaluate("name => document.body.setAttribute('data-md-color-scheme', name)", "slate" if dark else "default")
                tab.wait_for_timeout(300)  # colors change in a transition
                messages += [f"has a contrast of {text}, {'dark' if dark else 'light'}" for text in tab.evaluate(PALE, CONTRAST)]
            for word, wanted in FIRST.items():
                if (first := searched(tab, path, word)) != wanted:
                    messages.append(f"the search for {word} shows {first or 'nothing'} first, not {wanted}")
        if name == SEARCHED[0]:
            for page in sorted(site.glob("reference/*/*.html")):  # a query that fails is a warning on the console
                tab.evaluate(QUERY, page.stem)
                tab.wait_for_timeout(50)
            tab.wait_for_timeout(1000)
        yield from (f"{name} {text}" for text in dict.fromkeys(messages))
    context.close()


def searched(tab: Any, path: Path, word: str) -> str:
    """Return the page of the first result of a search that a page is opened with, relative to the site; empty without a result."""
    from playwright.sync_api import Error

    try:
        tab.goto(f"{path.as_uri()}?q={word}")
        link = tab.locator(".md-search-result__item a").first.get_attribute("href", timeout=1000 * SECONDS)
        base = tab.evaluate("() => JSON.parse(document.getElementById('__config').textContent).base")
    except Error:
        return ""
    root = urlsplit(urljoin(tab.url, base + "/")).path
    return unquote(urlsplit(urljoin(tab.url, link or "")).path).removeprefix(unquote(root))


def main() -> None:
    site, chromium = Path(sys.argv[1]).resolve(), browser_path()
    if chromium is None:
        print("the site is not checked: it needs Chromium (apt-get install chromium, or FGL_BENCH_CHROMIUM=PATH)")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        errors = list(problems(browser, site))
        browser.close()
    if errors:
        sys.exit("\n".join(errors))
    print(f"checked without network: {len(pages(site))} pages")


if __name__ == "__main__":
    main()
