"""Numbers and tables as text: for a terminal, as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import yaml
from tabulate import tabulate

from fgl_bench.results.scored import MARK

MINUS = "\N{MINUS SIGN}"
ESCAPES = {"\\": r"\textbackslash{}", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$", "$": r"\$", "{": r"\{", "}": r"\}"}
ESCAPES |= {MINUS: "$-$", "^": r"\^{}", "~": r"\~{}", MARK: r"$\dagger$"}
WIDE = 9  # columns of numbers that fit the width of a page
NARROW = 4  # columns that fit one column of a page
# Shrinks only tables wider than the line.
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


@cache
def display_names() -> dict[str, str]:
    path = Path(__file__).parent / "display_names.yaml"
    return {str(key): str(name) for key, name in yaml.safe_load(path.read_text(encoding="utf-8")).items()}


def display(text: str) -> str:
    """Return the display name of a choice (``FedSA-GCL`` for ``fedsa_gcl``); of several in one text, each."""
    names = display_names()
    return re.sub(r"[\w.]+", lambda found: names.get(found[0], found[0].replace("_", " ")), text)


def number(value: float | None, digits: int = 1, half: float | None = None, per_seed: Sequence[float | None] = ()) -> str:
    """Format a mean and its half-width as ``81.2 ± 0.6``, with ``(4/5)`` if 4 of 5 seeds have a value; ``no score`` if none has."""
    if value is None:
        return "no score"
    known = sum(each is not None for each in per_seed)
    seeds = f" ({known}/{len(per_seed)})" if known < len(per_seed) else ""
    return f"{value:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}") + seeds


def percent(share: float | None, digits: int = 1, half: float | None = None, per_seed: Sequence[float | None] = ()) -> str:
    """:func:`number` of a share in percent."""
    return number(None if share is None else 100 * share, digits, None if half is None else 100 * half, per_seed)


def marked(form: str, text: str, best: bool = False, alike: bool = False) -> str:
    """Mark an entry that is the best of its column, or does not differ significantly from the best."""
    if form == "md":
        return f"**{text}**" if best else f"<u>{text}</u>" if alike else text
    if form == "tex":
        text = re.sub(r"^-(?=\d)", MINUS, text)
        return rf"\textbf{{{escape(text)}}}" if best else rf"\underline{{{escape(text)}}}" if alike else escape(text)
    return text + (" *" if best else " ~" if alike else "")


def plain(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Format for a terminal. Columns beyond ``width`` continue below, with the first column repeated. Headings break at spaces."""
    heads = [head.replace(" ", "\n") for head in heads]
    parts = list(fitting(heads, rows, width))
    texts = [tabulate([[row[i] for i in part] for row in rows], [heads[i] for i in part], disable_numparse=True) for part in parts]
    return "\n\n".join("\n".join(line.rstrip() for line in text.splitlines()) for text in texts)


def fitting(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """Yield the column positions of every part; each starts with the first column."""
    padded = 2  # tabulate's padding of a heading
    sizes = [max([*(len(word) + padded for word in heads[i].split("\n")), *(len(row[i]) for row in rows)]) + 2 for i in range(len(heads))]
    part = [0]
    for i in range(1, len(heads)):
        if len(part) > 1 and sum(sizes[j] for j in (*part, i)) - 2 > width:
            yield part
            part = [0]
        part.append(i)
    yield part


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, *rows]
    head, *body = ("| " + " | ".join(entry.replace("|", "\\|") for entry in line) + " |" for line in lines)
    return "\n".join([head, "|---" * len(heads) + "|", *body])


def latex(
    corner: str, columns: Sequence[Sequence[str]], rows: Sequence[tuple[str, Sequence[str]]], caption: str, label: str
) -> Iterator[str]:
    """Yield the lines of a ``table`` with booktabs rules, or of a two-column ``table*`` if it is wide.

    Args:
        corner: heading of the row names.
        columns: headings of every column, from the top level down; equal neighbors share one.
        rows: names and entries, already escaped.
    """
    star = "*" * (min(len(columns), WIDE) > NARROW)
    yield rf"\begin{{table{star}}}"
    yield r"\centering\small"
    yield r"\setlength{\belowcaptionskip}{6pt}"  # without it the caption touches the rule
    yield rf"\caption{{{escape(caption)}}}"
    yield rf"\label{{{label}}}"
    for number_, part in enumerate(page_parts(columns)):
        yield from [r"\par\medskip"] * bool(number_)
        yield FIT
        yield rf"\begin{{tabular}}{{l{'c' * len(part)}}}"
        yield r"\toprule"
        yield from headings(corner, [columns[i] for i in part])
        yield r"\midrule"
        for name, entries in rows:
            yield " & ".join((escape(name), *(entries[i] for i in part))) + r" \\"
        yield r"\bottomrule"
        yield r"\end{tabular}}"
    yield rf"\end{{table{star}}}"


def page_parts(columns: Sequence[Sequence[str]]) -> Iterator[list[int]]:
    """Yield the column positions of every part; columns with a common heading stay in one part if they fit."""
    part: list[int] = []
    for _, same in groupby(range(len(columns)), key=lambda i: columns[i][0] if len(columns[i]) > 1 else i):
        group = list(same)
        for few in (group[start : start + WIDE] for start in range(0, len(group), WIDE)):
            last = few == [len(columns) - 1]  # avoid a last part with one column
            if part and len(part) + len(few) > WIDE + last:
                yield part
                part = []
            part += few
    yield part


def headings(corner: str, columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield one line per level of headings, with a thin rule below shared headings."""
    depth = len(columns[0])
    for level in range(depth):
        spans = [(key[-1], len(list(same))) for key, same in groupby(tuple(column[: level + 1]) for column in columns)]
        bottom = level == depth - 1
        alone = [not text or (bottom and width == 1) for text, width in spans]
        texts = [
            escape(text) if one else rf"\multicolumn{{{n}}}{{c}}{{{escape(text)}}}" for (text, n), one in zip(spans, alone, strict=True)
        ]
        yield " & ".join([escape(corner) if bottom else "", *texts]) + r" \\"
        if not bottom:
            yield "".join(rules(spans))


def rules(spans: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield a thin rule below every heading."""
    start = 2
    for text, width in spans:
        if text:
            yield rf"\cmidrule(lr){{{start}-{start + width - 1}}}"
        start += width


def escape(text: str) -> str:
    """Escape ``text`` for LaTeX."""
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def wrapped(sentences: Sequence[str], width: int) -> list[str]:
    import textwrap

    return [line for sentence in sentences for line in textwrap.wrap(sentence, width, subsequent_indent="  ", break_on_hyphens=False)]
