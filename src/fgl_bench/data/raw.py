"""Raw files: where they are, their download and safe reading; every failure is a one-line UserError that says what to do."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.errors import UserError
from fgl_bench.utils.files import umask

MOST_FEATURES = 1_000_000
"""Columns of a feature matrix; models have weights for each, whether or not a node has it."""
TIMEOUT_SECONDS = 15.0
"""Seconds without an answer, or between two parts of it, after which an attempt fails."""
RETRIES = 2
"""Attempts after the first one, 1 and 2 seconds later."""
ELSEWHERE = "set data_dir (or FGL_BENCH_DATA) to a folder that holds it; dataset=csbm needs no files"


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


def fetch(dataset: str, file: str, files: Mapping[str, Path], address: str | None, by_hand: str = "") -> None:
    """Download one of ``files``; processes that want the same file download it once.

    Args:
        dataset: name for messages.
        file: the absent file, by its name in ``files`` and ``sums.yaml``.
        files: the dataset's raw files; those that an archive at ``address`` holds as well are put in their places too.
        address: URL of the file or of a zip archive; None if nobody publishes the file in this form.
        by_hand: in that case, the content that belongs there.

    Raises:
        UserError: the file cannot be downloaded or written, or its sum is none of the known ones.
    """
    wanted = files[file]
    if address is None:
        put = f"put {by_hand}, or " if by_hand else ""
        raise UserError(f"dataset={dataset}: {wanted} not found, and it has no download in this form; {put}{ELSEWHERE}")
    folder = next(parent for parent in wanted.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"dataset={dataset}: {wanted} not found, and {folder} cannot be written to download it; {ELSEWHERE}")
    from filelock import FileLock

    lock = wanted.with_name(f".{wanted.name}.lock")
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock), tempfile.TemporaryDirectory(prefix=".download-", dir=wanted.parent) as scratch:
            if not wanted.exists():  # another process may have downloaded it
                part = download(dataset, wanted, address, Path(scratch), known_sums().get(file, []))
                _move_into_place(unpack(dataset, part, address, files.values()) if address.endswith(".zip") else {part: wanted})
    except OSError as error:
        raise UserError(f"dataset={dataset}: {wanted} cannot be written ({one_line(error)}); {ELSEWHERE}") from None
    finally:
        lock.unlink(missing_ok=True)


def download(dataset: str, wanted: Path, address: str, folder: Path, sums: list[str]) -> Path:
    """The path of the file at ``address``, in ``folder``; ``sums`` may be empty."""
    import pooch

    http = pooch.HTTPDownloader(timeout=TIMEOUT_SECONDS)

    def checked(url: str, output: str, parent: Any) -> None:
        http(url, output, parent)
        if sums and not known(Path(output), sums):  # pooch compares with a single sum, and does not know git's
            raise ValueError(f"its sum is none of the {len(sums)} known")

    pooch.get_logger().setLevel("WARNING")
    source = pooch.create(folder, "", registry={"part": None}, urls={"part": address}, retry_if_failed=RETRIES)
    try:
        return Path(source.fetch("part", downloader=checked))
    except (OSError, ValueError) as error:  # those of requests are OSErrors
        reason = getattr(error.args[0], "reason", error) if error.args else error
        advice = f"unpack its {wanted.name} by hand into" if address.endswith(".zip") else f"save it by hand as {wanted.name} in"
        raise UserError(
            f"dataset={dataset}: {wanted} not found, and downloading {address} failed ({one_line(reason)}); "
            f"{advice} {wanted.parent}, or {ELSEWHERE}"
        ) from None


def unpack(dataset: str, archive: Path, address: str, wanted: Any) -> dict[Path, Path]:
    """Unpack the absent ones of ``wanted`` next to ``archive``: the place of each unpacked file."""
    parts = {archive.with_name(path.name): path for path in wanted if not path.exists()}
    try:
        with zipfile.ZipFile(archive) as content:
            for part, path in parts.items():
                (entry,) = (name for name in content.namelist() if f"/{name}".endswith(f"/{path.name}"))
                with content.open(entry) as packed, part.open("wb") as out:
                    shutil.copyfileobj(packed, out)
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"dataset={dataset}: {address} is damaged ({one_line(error)}); try again") from None
    return parts


def _move_into_place(parts: Mapping[Path, Path]) -> None:
    for part, path in parts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(0o666 & ~umask())
        os.replace(part, path)


@cache
def known_sums() -> dict[str, list[str]]:
    """The sums in ``sums.yaml``, by file."""
    text = Path(__file__).with_name("sums.yaml").read_text(encoding="utf-8")
    return yaml.load(text, yaml.BaseLoader)  # everything is text: a sum of digits only is no number


def known(path: Path, sums: list[str], digest: str | None = None) -> bool:
    """Compare a file with its known sums: SHA-256 (64 digits, ``digest`` if it is computed already) or git's id (40 digits)."""
    if any(len(each) == 64 for each in sums):
        if digest is None:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest in sums:
            return True
    if not any(len(each) == 40 for each in sums):
        return False
    with path.open("rb") as file:
        header = b"blob %d\0" % os.fstat(file.fileno()).st_size
        return hashlib.file_digest(file, lambda: hashlib.sha1(header, usedforsecurity=False)).hexdigest() in sums
