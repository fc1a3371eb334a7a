"""``fgl-bench table``: the runs of a folder as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fgl_bench.errors import UserError
from fgl_bench.results.console import line_width
from fgl_bench.results.question import KEYS, read_words, short
from fgl_bench.results.result_table import ResultTable, table
from fgl_bench.utils.files import home, write_out

USAGE = "fgl-bench table [RESULTS] rows=algorithm cols=dataset,split"
DEFAULT = "results/runs"
FORMATS: dict[str, Callable[[ResultTable], str]] = {
    "md": ResultTable.markdown,
    "csv": ResultTable.csv,
    "tex": ResultTable.latex,
}


def show(arguments: Sequence[str]) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, or the runs cannot be compared.
    """
    words, rest = read_words(arguments, (*KEYS, "against", "test", "sweep", "digits", "format", "out"), USAGE)
    folder = only_folder(rest, USAGE)
    out, ending = target(words.pop("out", [""])[0], words.pop("format", [""])[0])
    asked = {key: values if key == "where" else values[0] for key, values in words.items() if key != "digits"}
    result = table(folder, **asked, digits=digits(words.get("digits", ["1"])[0]), width=line_width())  # type: ignore[arg-type]
    text = FORMATS[ending](result) if ending else f"{result}\n"
    if out is None:
        sys.stdout.write(text)
        return
    write(out, text)


def only_folder(rest: Sequence[str], usage: str) -> str:
    """Return the only argument without ``KEY=``, or the default."""
    if len(rest) > 1:
        raise UserError(f"{short(' '.join(rest))}: give one folder, and KEY=VALUE; {usage}")
    return rest[0] if rest else DEFAULT


def target(out: str, ending: str) -> tuple[Path | None, str]:
    """Return the file to write and its format: as given, else from the file name."""
    if ending and ending not in FORMATS:
        raise UserError(f"format={short(ending)}: must be one of {', '.join(FORMATS)}; without it the table is for a terminal")
    if not out:
        return None, ending
    path = home("out", out)
    if not ending and path.suffix[1:] not in FORMATS:
        raise UserError(f"out={short(out)}: must end in {', '.join(f'.{each}' for each in FORMATS)}, or give format=")
    return path, ending or path.suffix[1:]


def digits(text: str) -> int:
    if text not in list("0123456"):
        raise UserError(f"digits={short(text)}: must be an integer from 0 to 6")
    return int(text)


def write(path: Path, text: str) -> None:
    """Write a file and print its path; raises UserError on failure."""
    try:
        write_out(path, text.encode())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"out={short(str(path))}: cannot be written ({reason})") from error
    print(f"written: {path}")
