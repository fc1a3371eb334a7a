"""Open every page of the built site from the disk, without network.

    python scripts/site/check.py build/site

Fails if a page asks another host for something, reports an error or links to a file that is missing, or if the search finds nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LOCAL = ("file:", "data:", "blob:")
LINKS = "links => links.map(each => each.href)"
WORD = "FedAvg"  # to search for
SECONDS = 60.0  # that a search may take
SEARCHED = ("index.html", "guides/index.html", "reference/algorithm/fedavg.html")  # a page of each depth


def browser_path() -> str | None:
    """Chromium of the system."""
    paths = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return os.environ.get("FGL_BENCH_CHROMIUM") or next(filter(None, paths), None)


def pages(site: Path) -> list[Path]:
    """All pages but the one that a server shows in the place of a missing one."""
    return sorted(path for path in site.rglob("*.html") if path != site / "404.html")


def problems(browser: Any, site: Path) -> Iterator[str]:
    """One line for every problem of the site's pages."""
    context = browser.new_context(offline=True)
    tab, messages = context.new_page(), []
    tab.on("request", lambda sent: None if sent.url.startswith(LOCAL) else messages.append(f"asks for {sent.url}"))
    tab.on("console", lambda message: messages.append(f"{message.type}: {message.text}") if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: messages.append(f"error: {error}"))
    for path in pages(site):
        name = path.relative_to(site).as_posix()
        messages.clear()
        tab.goto(path.as_uri())
        targets = {unquote(urlsplit(link).path) for link in tab.eval_on_selector_all("a[href]", LINKS) if link.startswith("file:")}
        messages += [f"links to {target}, which is missing" for target in sorted(targets) if not Path(target).exists()]
        if name in SEARCHED and not finds(tab, WORD):
            messages.append(f"the search does not find {WORD}")
        yield from (f"{name} {text}" for text in dict.fromkeys(messages))
    context.close()


def finds(tab: Any, word: str) -> bool:
    """Return True if the page's search has a result."""
    from playwright.sync_api import Error

    try:
        tab.locator(".md-search__input").fill(word, timeout=1000 * SECONDS)
        tab.locator(".md-search-result__item").first.wait_for(timeout=1000 * SECONDS)
    except Error:
        return False
    return True


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
