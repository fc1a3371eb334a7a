"""The audit of the papers' arithmetic: figures worked out by hand beforehand, and a page that is up to date."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from audits.printed import best_cells, gains  # noqa: E402


@pytest.fixture(scope="module")
def audit():
    place = importlib.util.spec_from_file_location("audit_papers", ROOT / "scripts/audit_papers.py")
    script = importlib.util.module_from_spec(place)
    sys.modules[place.name] = script
    place.loader.exec_module(script)
    return script


@pytest.fixture(scope="module")
def text(audit) -> str:
    return audit.page(ROOT / "results/published")


@pytest.mark.audit
@pytest.mark.parametrize(
    "said",
    [
        "| 73.9, 73.2, 80.2 | 74.30, 73.69, 80.91 |",
        "| 1237.3, 1248.0, 614.7 | 1390.50, 1377.33, 599.00 |",
        "16 of 28",
        "2.16 and 3.21",
        "468.75 against FedGTA, 138.25 against FedBuff (Louvain: 497.50 and 658.00)",
        "reproduced to within 0.05 trips in 6",
        "3.54 over all baselines, 1.52 over the best",
        "12 of 51 (gossip 6, pens 6); 9 are above",
        "0 of 51; 20 are above",
        "table 4: 62 of 64",
        "58 of 66",
        "72.29 and 70.88",
        "minesweeper 8.90, tolokers 3.12, amazon_ratings 0.91, questions 0.74, roman_empire 0.42",
        "1.99 over all baselines, 0.57 over the best",
        "1.85 points, 2.43 % relative",
        "1.97 points, 2.56 % relative",
        "fedgl 2.43, fedsage_plus 2.90, mean 2.67",
        "without moments: 1.74 (1.0 to 3.1), without confidence: 0.58 (0.3 to 1.3)",
    ],
)
def test_figures_known_from_elsewhere_come_out(said: str, text: str) -> None:
    assert said in text


@pytest.mark.audit
def test_the_committed_page_is_what_the_script_writes(text: str) -> None:
    assert (ROOT / "docs/audit.md").read_text(encoding="utf-8") == text, "run scripts/audit_papers.py"


def test_a_grid_counts_strict_wins_and_gains() -> None:
    import pandas as pd

    grid = pd.DataFrame({"x": {"a": 3.0, "b": 1.0, "c": 2.0}, "y": {"a": 2.0, "b": 2.0, "c": 0.0}})
    assert best_cells(grid, "a") == (1, 2)
    assert gains(grid, "a") == (pytest.approx((2 + 1 + 0 + 2) / 4), pytest.approx(0.5))
