"""One pool for all tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.bed import Pool


@pytest.fixture(scope="session")
def pool() -> Pool:
    return Pool()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A table is one test of a hundred inputs; on a busy machine it takes longer than a test may elsewhere."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(1800))
