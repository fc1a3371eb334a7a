"""Finding, downloading and safely reading raw files; every failure becomes one line that a person can act on."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import stat
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

import numpy as np
import scipy.sparse as sp

from fgl_bench.errors import UserError
from fgl_bench.utils.files import replacing

MOST_FEATURES = 1_000_000
"""Columns of a feature matrix; models have weights for each, whether or not a node has it."""

TIMEOUT_SECONDS = 15.0
ELSEWHERE = "set data_dir (or FGL_BENCH_DATA) to a folder that holds it; dataset=csbm needs no files"


def data_root(data_dir: str | None) -> Path:
    """The folder of raw files: ``data_dir``, else the environment's FGL_BENCH_DATA, else ``data``."""
    return Path(os.path.expanduser(data_dir or os.environ.get("FGL_BENCH_DATA") or "data"))


def present(key: str, path: Path) -> bool:
    """Whether there is a regular file at ``path``; ``key`` opens the message.

    Raises:
        UserError: there is something else, such as a folder, or the path cannot be looked up.
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


def locate(dataset: str, paths: Iterable[Path], address: Callable[[str], str] | None, what: str | None = None) -> list[Path]:
    """``paths`` as a list, downloading what is absent.

    Args:
        dataset: name for messages.
        paths: the files, as :meth:`Dataset.files` places them.
        address: maps a file's name to where it is published; None where nobody publishes it in this form.
        what: to put there in that case.

    Raises:
        UserError: a file is absent and cannot be downloaded, or its folder cannot be written.
    """
    paths = list(paths)
    missing = [path for path in paths if not present(f"dataset={dataset}", path)]
    for path in missing:
        if address is None:
            put = f"put {what}, or " if what else ""
            raise UserError(f"dataset={dataset}: {path} not found, and it has no download in this form; {put}{ELSEWHERE}")
        with downloaded(dataset, path, partial(address, path.name)) as temporary:
            place(dataset, temporary, path)
    return paths


@contextmanager
def downloaded(dataset: str, wanted: Path, address: Callable[[], str]) -> Iterator[Path]:
    """Downloads what ``wanted`` lacks to a temporary file, complete or not at all."""
    folder = next(parent for parent in wanted.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"dataset={dataset}: {wanted} not found, and {folder} cannot be written to download it; {ELSEWHERE}")
    with tempfile.TemporaryDirectory() as scratch:
        temporary, source = Path(scratch) / "download", "its address"
        try:
            source = address()
            # urllib checks certificates and honors proxies; the timeout also ends a connection that stalls.
            with urllib.request.urlopen(source, timeout=TIMEOUT_SECONDS) as answer, temporary.open("wb") as out:
                shutil.copyfileobj(answer, out)
                announced = answer.headers.get("Content-Length")
            if announced is not None and temporary.stat().st_size != int(announced):
                raise OSError(f"{temporary.stat().st_size} of {announced} bytes arrived")
        except (OSError, ValueError, ImportError, http.client.HTTPException) as error:
            by_hand = f"unpack its {wanted.name} by hand into" if source.endswith(".zip") else f"save it by hand as {wanted.name} in"
            raise UserError(
                f"dataset={dataset}: {wanted} not found, and downloading {source} failed ({one_line(error)}); "
                f"{by_hand} {wanted.parent}, or {ELSEWHERE}"
            ) from None
        yield temporary


def place(dataset: str, temporary: Path, wanted: Path) -> None:
    """Puts a finished download where it belongs; nobody ever sees half a file there."""
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        with replacing(wanted) as part:
            shutil.copyfile(temporary, part)
    except OSError as error:
        raise UserError(f"dataset={dataset}: {wanted} cannot be written ({one_line(error)}); {ELSEWHERE}") from None


def unpack(dataset: str, archive: Path, source: str, member: Callable[[Path], str], wanted: list[Path]) -> None:
    """Puts the files ``wanted`` of a zip archive, downloaded from ``source``, in their places; ``member`` is how a file's entry ends."""
    parts = [archive.with_name(path.name) for path in wanted]
    try:
        with zipfile.ZipFile(archive) as content:
            for part, path in zip(parts, wanted, strict=True):
                (entry,) = (name for name in content.namelist() if f"/{name}".endswith(member(path)))
                with content.open(entry) as packed, part.open("wb") as out:
                    shutil.copyfileobj(packed, out)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"dataset={dataset}: {source} is damaged ({one_line(error)}); try again") from None
    for part, path in zip(parts, wanted, strict=True):
        place(dataset, part, path)


@contextmanager
def reading(dataset: str, path: Path) -> Iterator[None]:
    """Turns whatever a parser raises on a damaged file into one line that names the file."""
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


def array_shapes(file: IO[bytes]) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of an ``.npz`` file, by their headers alone: a small file may unpack to many times its size."""
    shapes = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                first = np.lib.format.read_magic(member) == (1, 0)
                header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                shapes[name.removesuffix(".npy")] = header(member)[0]
    file.seek(0)
    return shapes


def read_arrays(dataset: str, path: Path, keys: list[str]) -> dict[str, np.ndarray]:
    """The named arrays of an ``.npz`` file; refuses pickled content."""
    with reading(dataset, path), path.open("rb") as file:
        most = max((shape[1] for key, shape in array_shapes(file).items() if key in keys and len(shape) == 2), default=0)
        if most > MOST_FEATURES:
            raise ValueError(f"an array has {most} columns; at most {MOST_FEATURES} are allowed")
        with np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in keys}


CSR_PARTS = ["data", "indices", "indptr", "shape"]
CSR_GRAPH = "an npz with adj_* and attr_* (data, indices, indptr, shape of CSR matrices) and labels there"
MUSAE = f"{CSR_GRAPH}, which docs/data.md makes of the files as published"


def read_csr_graph(dataset: str, path: Path) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray, np.ndarray]:
    """Features, edge rows, edge columns and labels of the npz layout with ``adj_*`` and ``attr_*`` CSR parts.

    Gives what PyG's ``read_npz`` gives, binarization (``x[x > 0] = 1``) included, without ever making ``x`` dense.
    """
    keys = [f"{matrix}_{part}" for matrix in ("attr", "adj") for part in CSR_PARTS]
    arrays = read_arrays(dataset, path, [*keys, "labels"])
    with reading(dataset, path):
        features = csr(arrays, "attr_").astype(np.float32)
        features.sum_duplicates()
        features.data[features.data > 0] = 1
        links = csr(arrays, "adj_").tocoo()
        labels = arrays["labels"].astype(np.int64)
        if not features.shape[0] == links.shape[0] == links.shape[1] == labels.shape[0]:
            raise ValueError(f"{features.shape[0]} feature rows, {links.shape} adjacency, {labels.shape[0]} labels")
    return features, links.row, links.col, labels


def csr(arrays: dict[str, np.ndarray], prefix: str = "") -> sp.csr_matrix:
    """The checked matrix of the arrays ``<prefix>data`` and so on; raises ValueError."""
    data, indices, indptr, shape = (arrays[f"{prefix}{part}"] for part in CSR_PARTS)
    if any(array.dtype.kind not in "iu" for array in (indices, indptr, shape)):
        raise ValueError("indices, indptr and shape must hold integers")
    matrix = sp.csr_matrix((data, indices, indptr), shape=cast(tuple[int, int], tuple(int(size) for size in shape)))
    matrix.check_format(full_check=True)
    return matrix
