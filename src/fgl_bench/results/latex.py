"""A user's table as LaTeX: booktabs' rules, parts of at most a page's width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fgl_bench.results.compared import Block, Compared, column_label, label
from fgl_bench.results.divergence import MARK
from fgl_bench.results.formats import RANK, absent, cells, notes, one_line

ESCAPES = {"\\": r"\textbackslash{}", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$", "$": r"\$", "{": r"\{", "}": r"\}"}
ESCAPES |= {"^": r"\^{}", "~": r"\~{}", MARK: r"$\dagger$"}


def escape(text: str) -> str:
    """``text`` for LaTeX."""
    return "".join(ESCAPES.get(letter, letter) for letter in text)


WIDE = 8  # columns of numbers side by side; more stand below
NARROW = 4  # columns that fit the column of a page
# Shrinks what is wider than the line, and leaves alone what is not.
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def latex(table: Compared, commands: bool = True) -> str:
    """A float for each kind of model; ``commands`` of missing runs are listed in comments."""
    lines = [r"% \usepackage{booktabs,graphicx}"]
    for block in table.blocks:
        lines += ["", *floating(table, block)]
    missing = absent(table, None) if commands else []
    return "\n".join([*lines, *(f"% {one_line(line)}".rstrip() for line in missing)]) + "\n"


def floating(table: Compared, block: Block) -> Iterator[str]:
    """One ``table``; ``table*``, over both columns of a page, where it is wide."""
    heads, rows = cells(table, block, marked)
    columns, ranked = list(table.chosen.columns), heads[-1] == RANK and len(heads) > len(table.chosen.columns) + 1
    parts = [range(start, min(start + WIDE, len(columns))) for start in range(0, len(columns), WIDE)]
    star = "*" * (min(len(columns), WIDE) + ranked > NARROW)
    caption = [f"{table.unit[:1].upper()}{table.unit[1:]} of {block.model} models.", *notes(table, "Bold:", "Underlined:")]
    yield rf"\begin{{table{star}}}"
    yield r"\centering\small"
    yield r"\setlength{\belowcaptionskip}{6pt}"  # without it the caption touches the rule
    yield rf"\caption{{{escape(' '.join(caption))}}}"
    yield rf"\label{{tab:{block.model}}}"
    for number, part in enumerate(parts):
        last = ranked and number == len(parts) - 1
        yield from [r"\par\medskip"] * bool(number)
        yield FIT
        yield rf"\begin{{tabular}}{{l{'c' * (len(part) + last)}}}"
        yield r"\toprule"
        yield from headings(table, [columns[i] for i in part], last)
        yield r"\midrule"
        for row in rows:
            shown = [*(row[i + 1] for i in part), *[row[-1]] * last]
            yield " & ".join((escape(row[0]), *shown)) + r" \\"
        yield r"\bottomrule"
        yield r"\end{tabular}}"
    yield rf"\end{{table{star}}}"


def marked(shown: str, best: bool, alike: bool) -> str:
    """A cell's text for LaTeX."""
    return rf"\textbf{{{escape(shown)}}}" if best else rf"\underline{{{escape(shown)}}}" if alike else escape(shown)


def headings(table: Compared, columns: Sequence[Sequence[str]], ranked: bool) -> Iterator[str]:
    """A line for every key of the columns; equal neighbors share a heading."""
    first = escape(label(table.question.rows))
    for level in range(max(len(table.question.cols), 1)):
        bottom = level == max(len(table.question.cols), 1) - 1
        spans = [(key, len(list(same))) for key, same in groupby(tuple(column[: level + 1]) for column in columns)]
        texts = [escape(column_label(table.question.cols[level : level + 1], key[level:])) for key, _ in spans]
        widths = [width for _, width in spans]
        entries = [
            text if bottom and width == 1 else rf"\multicolumn{{{width}}}{{c}}{{{text}}}" for text, width in zip(texts, widths, strict=True)
        ]
        yield " & ".join(([first] if bottom else [""]) + entries + [RANK if bottom else ""] * ranked) + r" \\"
        if not bottom:
            yield "".join(rules(widths))


def rules(widths: Sequence[int]) -> Iterator[str]:
    """A thin rule below every heading."""
    start = 2
    for width in widths:
        yield rf"\cmidrule(lr){{{start}-{start + width - 1}}}"
        start += width
