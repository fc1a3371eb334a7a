"""One pool for all tables."""

from __future__ import annotations

import pytest

from tests.hostile.bed import Pool


@pytest.fixture(scope="session")
def pool() -> Pool:
    return Pool()
