"""The browser of the tests of the report page."""

from __future__ import annotations

import pytest

from scripts.site.check import browser_path
from tests.results.report_pages import two_papers, whole_report


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright: pip install 'fgl-bench[dev]'")
    path = browser_path()
    if path is None:
        pytest.skip("the browser tests need Chromium: apt-get install chromium, or FGL_BENCH_CHROMIUM=PATH")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "report.html"
    made.write_text(two_papers(out=made, leaderboard=tmp_path / "leaderboard"), encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A page of own runs, papers and leaderboards."""
    folder = tmp_path_factory.mktemp("whole")
    made = folder / "report.html"
    made.write_text(whole_report(folder), encoding="utf-8")
    return made
