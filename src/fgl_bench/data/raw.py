"""Locate and safely read raw files; every failure is a one-line UserError that says what to do."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fgl_bench.errors import UserError

MOST_FEATURES = 1_000_000
"""Columns of a feature matrix; models have weights for each, whether or not a node has it."""


def data_root(data_dir: str | None) -> Path:
    """The folder of raw files: ``data_dir``, else the environment's FGL_BENCH_DATA, else ``data``."""
    return Path(os.path.expanduser(data_dir or os.environ.get("FGL_BENCH_DATA") or "data"))


def present(key: str, path: Path) -> bool:
    """Return True if ``path`` is a regular file; error messages begin with ``key``.

    Raises:
        UserError: ``path`` is something else, such as a folder, or cannot be accessed.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise UserError(f"{key}: {shown(path)} cannot be read ({getattr(error, 'strerror', None) or one_line(error)})") from None
    if not stat.S_ISREG(mode):
        raise UserError(f"{key}: {path} is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}; a file belongs there")
    return True


def shown(path: Path) -> str:
    """``path`` for a message: long ones are cut, control characters escaped."""
    text = str(path).encode("unicode_escape").decode()
    return text if len(text) <= 200 else f"{text[:200]}..."


@contextmanager
def reading(dataset: str, path: Path) -> Iterator[None]:
    """Convert any parser error on a damaged file to a one-line error that names the file."""
    try:
        yield
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"dataset={dataset}: {path} takes more memory than there is; it is large, or damaged") from None
    except PermissionError as error:
        raise UserError(f"dataset={dataset}: {path} cannot be read ({one_line(error)})") from None
    except Exception as error:  # parsers of damaged files raise nearly anything
        raise UserError(
            f"dataset={dataset}: {path} is corrupt or truncated ({one_line(error)}); "
            "delete it so that it is downloaded again, or put a sound copy there"
        ) from None


def one_line(error: BaseException) -> str:
    """An exception as a short single line, without a terminal's colors."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
