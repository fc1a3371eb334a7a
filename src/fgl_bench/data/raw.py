"""Finding, downloading and safely reading raw files; every failure becomes one line that a person can act on."""

from __future__ import annotations

import http.client
import os
import pickle
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fgl_bench.errors import UserError

TIMEOUT_SECONDS = 15.0
ELSEWHERE = "set data_dir (or FGL_BENCH_DATA) to a folder that holds it; dataset=csbm needs no files"


def data_root(data_dir: str | None) -> Path:
    """The folder of raw files: ``data_dir``, else the environment's FGL_BENCH_DATA, else ``data``."""
    return Path(data_dir or os.environ.get("FGL_BENCH_DATA") or "data").expanduser()


class Found(BaseException):
    """Raised instead of reading or downloading while :func:`absent_files` asks; ``missing`` are the files that are not there."""

    def __init__(self, missing: list[Path]):
        super().__init__(missing)
        self.missing = missing


_asking: ContextVar[bool] = ContextVar("asking", default=False)


def absent_files(read: Callable[[Path], object], root: Path) -> list[Path]:
    """The first raw files that ``read(root)`` would look for and not find; nothing is parsed or downloaded.

    Args:
        read: a dataset's method that asks for its files by the functions of this module.
    """
    token = _asking.set(True)
    try:
        read(root)
        return []
    except Found as found:
        return found.missing
    except UserError:
        return [root]
    finally:
        _asking.reset(token)


def locate(dataset: str, root: Path, files: list[str], address: Callable[[str], str] | None) -> list[Path]:
    """Paths of ``files`` (relative to ``root``), downloading what is absent.

    Args:
        dataset: name for messages.
        root: see :func:`data_root`.
        files: paths below ``root``.
        address: maps a file's name to where it is published; None where nobody publishes it in this form.

    Raises:
        UserError: a file is absent and cannot be downloaded, or its folder cannot be written.
    """
    paths = [root / file for file in files]
    missing = [path for path in paths if not path.is_file()]
    if _asking.get():
        raise Found(missing)
    if missing and address is None:
        raise UserError(f"dataset={dataset}: {missing[0]} not found, and it has no download in this form; {ELSEWHERE}")
    for path in missing:
        with downloaded(dataset, path, lambda path=path: address(path.name)) as temporary:
            place(dataset, temporary, path)
    return paths


@contextmanager
def downloaded(dataset: str, wanted: Path, address: Callable[[], str]) -> Iterator[Path]:
    """Downloads what ``wanted`` lacks to a temporary file, complete or not at all."""
    if _asking.get():
        raise Found([wanted])
    folder = next(parent for parent in wanted.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"dataset={dataset}: {wanted} not found, and {folder} cannot be written to download it; {ELSEWHERE}")
    with tempfile.TemporaryDirectory() as scratch:
        temporary = Path(scratch) / "download"
        try:
            source = address()
            # urllib checks certificates and honours proxies; the timeout also ends a connection that stalls.
            with urllib.request.urlopen(source, timeout=TIMEOUT_SECONDS) as answer, temporary.open("wb") as out:
                shutil.copyfileobj(answer, out)
                announced = answer.headers.get("Content-Length")
            if announced is not None and temporary.stat().st_size != int(announced):
                raise OSError(f"{temporary.stat().st_size} of {announced} bytes arrived")
        except (OSError, ValueError, ImportError, http.client.HTTPException) as error:
            raise UserError(f"dataset={dataset}: {wanted} not found, and downloading it failed ({one_line(error)}); {ELSEWHERE}") from None
        yield temporary


def place(dataset: str, temporary: Path, wanted: Path) -> None:
    """Puts a finished download where it belongs; nobody ever sees half a file there."""
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        part = wanted.with_name(f"{wanted.name}.{os.getpid()}.part")
        shutil.copyfile(temporary, part)
        os.replace(part, wanted)
    except OSError as error:
        raise UserError(f"dataset={dataset}: {wanted} cannot be written ({one_line(error)}); {ELSEWHERE}") from None


def unpack(dataset: str, archive: Path, source: str, member: Callable[[Path], str], wanted: list[Path]) -> None:
    """Puts the files ``wanted`` of a zip archive, downloaded from ``source``, in their places; ``member`` is how a file's entry ends."""
    parts = [archive.with_name(path.name) for path in wanted]
    try:
        with zipfile.ZipFile(archive) as content:
            for part, path in zip(parts, wanted, strict=True):
                (entry,) = (name for name in content.namelist() if f"/{name}".endswith(member(path)))
                with content.open(entry) as source, part.open("wb") as out:
                    shutil.copyfileobj(source, out)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"dataset={dataset}: {source} is damaged ({one_line(error)}); try again") from None
    for part, path in zip(parts, wanted, strict=True):
        place(dataset, part, path)


@contextmanager
def reading(dataset: str, path: Path) -> Iterator[None]:
    """Turns whatever a parser raises on a damaged file into one line that names the file."""
    if _asking.get():
        raise Found([] if path.exists() else [path])
    try:
        yield
    except (UserError, MemoryError):
        raise
    except PermissionError as error:
        raise UserError(f"dataset={dataset}: {path} cannot be read ({one_line(error)})") from None
    except Exception as error:  # parsers of damaged files raise nearly anything
        raise UserError(
            f"dataset={dataset}: {path} is corrupt or truncated ({one_line(error)}); "
            "delete it so that it is downloaded again, or put a sound copy there"
        ) from None


def one_line(error: BaseException) -> str:
    """An exception as a short single line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


def read_arrays(dataset: str, path: Path, keys: list[str]) -> dict[str, np.ndarray]:
    """The named arrays of an ``.npz`` file; refuses pickled content."""
    with reading(dataset, path), path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {key: archive[key] for key in keys}


CSR_PARTS = ["data", "indices", "indptr", "shape"]


def read_csr_graph(dataset: str, path: Path) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray, np.ndarray]:
    """Features, edge rows, edge columns and labels of the npz layout with ``adj_*`` and ``attr_*`` CSR parts.

    Gives what PyG's ``read_npz`` gives, binarisation (``x[x > 0] = 1``) included, without ever making ``x`` dense.
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
    matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(int(size) for size in shape))
    matrix.check_format(full_check=True)
    return matrix


PICKLE_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): np._core.multiarray._reconstruct for core in ("core", "_core")},
    **{(f"scipy.sparse{name}", "csr_matrix"): sp.csr_matrix for name in ("", ".csr", "._csr")},
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of arrays, CSR matrices and plain containers; any other class in the file is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PICKLE_ALLOWED:
            return PICKLE_ALLOWED[module, name]
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file")


def read_pickle(dataset: str, path: Path) -> Any:
    """One array pickle, of Python 2 or 3, through :class:`ArrayUnpickler`."""
    with reading(dataset, path), path.open("rb") as file:
        return ArrayUnpickler(file, encoding="latin1").load()
