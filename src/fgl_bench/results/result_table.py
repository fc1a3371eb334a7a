"""Tables of runs by row and column, for a terminal, as Markdown, LaTeX or tidy data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgl_bench.errors import UserError, printable
from fgl_bench.results import render
from fgl_bench.results.choose import BEFORE, BUDGET, GROUPS, Chosen, Values, choose, value
from fgl_bench.results.compare import Block, Compared, column_label, label
from fgl_bench.results.frame import Result, folder_of, read_runs
from fgl_bench.results.question import BOTH, Question, Words, as_text, is_number, question
from fgl_bench.results.scored import MARK
from fgl_bench.results.statistics import FEW, LEVEL, guarantee, wide
from fgl_bench.results.sweeps import choose_in

if TYPE_CHECKING:
    from pandas import DataFrame

DEFAULT_FOLDER = Path("results/runs")
COMMON = ("dataset", "split", "num_clients", "model", "scenario", "rounds")  # named below a table that has one value of them
HARDSHIPS = ("sparsity", "noise", "attack", "aggregator", "privacy")  # named where they are not their default
MOST_MISSING = 10  # missing runs listed in a terminal
RANK = "rank"
NAMES = {"t": "t-test", "wilcoxon": "signed-rank test"}
SIGNS = {"text": ("*", "~"), "md": ("Bold:", "Underlined:"), "tex": ("Bold:", "Underlined:")}
"""By format, the marks of the best of a column and of cells that do not differ significantly from it."""


class ResultTable(Compared):
    """A table of runs; ``str()`` formats it for a terminal."""

    def __str__(self) -> str:
        lines = []
        for block in self.blocks:
            heads = [*(column_label(self.question.cols, column) for column in self.chosen.columns), *[RANK] * bool(block.ranks)]
            rows = [[name, *entries] for name, entries in self.rows(block, "text")]
            corner = label(self.question.rows)
            lines += [f"{self.unit}, {block.model} model", render.plain([corner, *heads], rows, self.width), ""]
        return "\n".join([*lines, *render.wrapped(notes(self, "text"), self.width), *absent(self)])

    def markdown(self, commands: bool = True) -> str:
        """Return Markdown, with the best in bold and cells that do not differ significantly from it underlined.

        Args:
            commands: list the commands of missing runs.
        """
        lines = []
        for block in self.blocks:
            heads = [*(column_label(self.question.cols, column) for column in self.chosen.columns), *[RANK] * bool(block.ranks)]
            rows = [[without_tags(name), *entries] for name, entries in self.rows(block, "md")]
            named = [without_tags(head) for head in (label(self.question.rows), *heads)]
            lines += [f"**{self.unit}, {block.model} model**", "", render.markdown(named, rows), ""]
        lines.append(without_tags(" ".join(notes(self, "md"))))
        missing = absent(self, None) if commands else []
        code = [f"    {one_line(line.strip())}" for line in missing[2:]]
        return "\n".join([*lines, *missing[:2], *[""] * bool(code), *code]) + "\n"

    def latex(self, commands: bool = True) -> str:
        """Return LaTeX with booktabs rules, one float per kind of model; needs ``\\usepackage{booktabs,graphicx}``.

        Args:
            commands: list the commands of missing runs in comments.
        """
        lines, keys = [r"% \usepackage{booktabs,graphicx}"], self.question.cols or ("",)
        for block in self.blocks:
            columns = [column or ("all",) for column in self.chosen.columns]
            heads = [
                tuple(render.display(column_label([key], [choice])) for key, choice in zip(keys, column, strict=True)) for column in columns
            ]
            heads += [("",) * (len(keys) - 1) + (RANK,)] * bool(block.ranks)
            caption = " ".join([f"{self.unit[:1].upper()}{self.unit[1:]} of {block.model} models.", *notes(self, "tex")])
            rows = [(render.display(name), entries) for name, entries in self.rows(block, "tex")]
            key = f"tab:{block.model}" + f"-against-{self.question.against}" * bool(self.question.against)
            lines += ["", *render.latex(label(self.question.rows), heads, rows, caption, key)]
        missing = absent(self, None) if commands else []
        return "\n".join([*lines, *(f"% {one_line(line)}".rstrip() for line in missing)]) + "\n"

    def csv(self) -> str:
        """:meth:`frame` as csv."""
        return self.frame().map(plain_cell).to_csv(index=False, lineterminator="\n")

    def rows(self, block: Block, form: str) -> list[tuple[str, list[str]]]:
        """Return names and entries of the rows: a dash without a run, then the average rank if it is defined."""
        ranks, result = block.ranks.ranks if block.ranks else {}, []
        for row in self.chosen.rows:
            entries = []
            for column in self.chosen.columns:
                score, test = block.scores.get((row, column)), block.tests.get((row, column))
                if self.question.against and score and label(row) != self.question.against:
                    gap = block.differences.get((row, column))
                    entries.append(render.marked(form, gap.text(self.digits), gap.significant) if gap else "not compared")
                    continue
                entries.append(render.marked(form, score.text(self.digits), *((test.best, test.alike) if test else ())) if score else "-")
            rank = [f"{ranks[label(row)]:.2f}" if label(row) in ranks else ""] * bool(ranks)
            result.append((label(row), [*entries, *rank]))
        return result

    def frame(self) -> DataFrame:
        """Return one row per cell and kind of model, unrounded."""
        import pandas as pd

        question, lines = self.question, []
        for block in self.blocks:
            for position in ((row, column) for row in self.chosen.rows for column in self.chosen.columns):
                line: dict[str, Any] = dict(zip((*question.rows, *question.cols), (*position[0], *position[1]), strict=True))
                line |= {"evaluated": block.model, "metric": question.metric}
                score, test = block.scores.get(position), block.tests.get(position)
                if score is not None:
                    run = self.chosen.runs[position]
                    line |= {"metric": question.metric or run.summary["metric"], "mean": score.mean, "ci95": score.half, "std": score.std}
                    line |= {"epsilon": spent["epsilon"], "delta": spent["delta"]} if (spent := run.summary.get("privacy_spent")) else {}
                    line["seeds"] = " ".join(map(str, score.per_seed))
                    line["per_seed"] = " ".join("" if each is None else str(each) for each in score.per_seed.values())
                    line |= {"best": bool(test and test.best), "not_different": bool(test and (test.best or test.alike))}
                    if self.question.against:
                        gap = block.differences.get(position)
                        line |= {"difference": gap and gap.mean, "difference_ci95": gap and gap.half}
                    line |= {
                        "p_holm": gap and gap.p if self.question.against else test.p if test else None,
                        "config_hash": run.summary["config_hash"],
                        "folder": str(run.folder),
                    }
                line["average_rank"] = block.ranks.ranks.get(label(position[0])) if block.ranks else None
                lines.append(line)
        return pd.DataFrame(lines)


def table(
    results: str | Path = "results/runs",
    rows: Words | None = None,
    cols: Words | None = None,
    where: Words | Mapping[str, object] = (),
    model_of: str = BOTH,
    metric: str | None = None,
    digits: int = 1,
    width: int = 80,
    sweep: str | int | None = None,
    against: str | None = None,
    test: str = "t",
) -> ResultTable:
    """Return the runs of a folder as a table: those of its newest sweep, if it has sweeps, and later runs that are comparable with them.

    Args:
        rows, cols: keys whose values are the rows and columns, as a list or joined by commas: ``algorithm``, ``dataset``, ``split``,
            ``num_clients``, ``model``, ``scenario``, ``sparsity``, a key of the configuration such as ``lr`` or ``algorithm.mu``, or
            ``client``, for the scores of every client.
            By default the keys of the sweep's own table, else ``algorithm`` and ``dataset,split``.
        where: allowed values, such as ``{"num_clients": 10, "dataset": ["cora", "citeseer"]}``; ``"*"`` allows any.
        model_of: ``received``, ``trained`` or ``both``.
        metric: see :func:`fgl_bench.results.compare.score`; None for each run's own.
        digits: number of decimals.
        width: line length of ``str()``, in characters.
        sweep: ``"all"`` for all runs of the folder, or the number of a sweep.
        against: the name of a row; the others then show their differences from it.
        test: the paired test of these differences, one of :data:`fgl_bench.results.statistics.TESTS`.

    Raises:
        UserError: there are no such runs, or they cannot be compared.
    """
    default = Question()
    asked = question(default.rows if rows is None else rows, default.cols if cols is None else cols, where, model_of, metric, against, test)
    if isinstance(digits, bool) or digits not in range(7):
        raise UserError(f"digits={digits}: must be an integer from 0 to 6")
    chosen = choose_in(folder_of(results), read_runs(results), asked, sweep, own_keys=rows is None and cols is None)
    return ResultTable(Path(results), chosen, digits, width)


def of_sweep(runs: Sequence[Result], question: Question, folder: Path, number: int, width: int) -> str:
    """Return the table of a sweep's runs and the command that reproduces it.

    Args:
        folder: the ``results_dir`` with the sweep ``number``.

    Raises:
        UserError: the runs cannot be compared.
    """
    result = ResultTable(folder, choose(runs, question), width=width)
    line = shlex.join(["fgl-bench", "table", str(folder), f"sweep={number}"])
    return f"\n{result}\n\nthis table again, or as md, csv or LaTeX with out=FILE:\n  {line}"


def notes(table: Compared, form: str) -> list[str]:
    """Return the explanations below a table in a format."""
    best, alike = SIGNS[form]
    runs = list(table.chosen.runs.values())
    seeds = sorted({len(run.summary["seeds"]) for run in runs})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    standings = [standing for block in table.blocks for standing in block.tests.values()]
    sentences = [f"Mean over {count} seed{'s' * (seeds != [1])}{' ± half-width of the 95 % t-interval' * (seeds[-1] > 1)}."]
    keys = [key for key in (*COMMON, *HARDSHIPS) if key not in (*table.question.rows, *table.question.cols)]
    common = {key: {as_text(value(run, key)) for run in runs} for key in keys}
    usual = {(key, BEFORE.get(key, "none")) for key in HARDSHIPS}
    shared = [(key, texts.pop()) for key, texts in common.items() if len(texts) == 1]
    if pairs := [f"{key}={text}" for key, text in shared if (key, text) not in usual]:
        sentences.append(f"In all runs: {', '.join(pairs)}.")
    sentences += differences_note(table, best) if table.question.against else []
    lower = any(score.lower for block in table.blocks for score in block.scores.values())
    sentences += [f"{best} best of a column{' (fewest)' * lower}."] if standings else []
    if tests := sorted({standing.seeds for standing in standings if standing.p is not None}):
        corrected = f"paired t-tests over the seeds, Holm-corrected in a column, {100 * LEVEL:g} %"
        sentences.append(f"{alike} not significantly different from the best: {corrected}.")
        if tests[0] < FEW:
            sentences.append(f"{tests[0]} seeds: a test of so few finds large differences only.")
    ranked = {block.model: block for block in table.blocks if block.ranks}
    if ranked:
        parts = [f"{len(block.ranked)} of {len(table.chosen.columns)} columns ({model})" for model, block in ranked.items()]
        whole = all(len(block.ranked) == len(table.chosen.columns) for block in ranked.values())
        sentences.append(f"{RANK}: average rank over {f'{len(table.chosen.columns)} columns' if whole else ', '.join(parts)}, 1 is best.")
    scenarios: dict[str, list[str]] = {}
    for run in runs:
        scenarios.setdefault(run.summary["scenario"], []).append(run.summary["algorithm"])
    if len(scenarios) > 1 and "scenario" not in table.question.keys:
        named = (f"{scenario} ({', '.join(sorted(set(methods)))})" for scenario, methods in sorted(scenarios.items()))
        sentences.append(f"Scenarios: {'; '.join(named)}.")
    scores = [score for block in table.blocks for score in block.scores.values()]
    sentences += wide([None if score.lower else score.half for score in scores])
    if any(score.diverged for score in scores):
        sentences.append(f"{MARK} models of some clients diverged.")
    if any(not score.complete for score in scores):
        sentences.append("(n/m): only n of m seeds have a value; the mean is theirs and competes with no other.")
    private: dict[str, list[str]] = {}
    for (row, column), run in table.chosen.runs.items():
        if spent := run.summary.get("privacy_spent"):
            private.setdefault(guarantee(spent), []).append(f"{label(row)} {label(column)}".strip())
    sentences += [f"{', '.join(names)}: {words}." for words, names in private.items()]
    sentences += identical(table.chosen)
    if table.chosen.superseded:
        sentences.append(f"{table.chosen.superseded} run(s) of an earlier version of a class or of data are left out.")
    return sentences


def identical(chosen: Chosen) -> list[str]:
    """Name the rows whose runs have equal test scores in every seed: one method probably took the steps of another."""
    columns_of: dict[tuple[Values, ...], int] = {}
    for column in chosen.columns:
        rows_with: dict[str, list[Values]] = {}
        for row in chosen.rows:
            if run := chosen.runs.get((row, column)):
                rows_with.setdefault(json.dumps(run.summary["test"]), []).append(row)
        for rows in filter(lambda rows: len(rows) > 1, rows_with.values()):
            columns_of[tuple(rows)] = columns_of.get(tuple(rows), 0) + 1
    whole = len(chosen.columns)
    return [
        f"{', '.join(map(label, rows))}: equal scores in every seed of {f'{count} of {whole} columns' if whole > 1 else 'the column'}."
        for rows, count in columns_of.items()
    ]


def differences_note(table: Compared, sign: str) -> list[str]:
    """Return the explanations of a table of differences."""
    question = table.question
    counts = sorted({gap.seeds for block in table.blocks for gap in block.differences.values()})
    test = f"the p-value of the paired {NAMES[question.test]}, Holm-corrected in a column"
    sentences = [f"Other rows: their difference from {question.against}, its 95 % t-interval, and {test}."]
    sentences.append(f"{sign} significant at {100 * LEVEL:g} %.")
    if counts and question.test != "t" and 2 / 2 ** counts[0] > LEVEL:
        sentences.append(
            f"{counts[0]} seeds: the p-values of this test are at least {2 / 2 ** counts[0]:.2g}, so that none is significant."
        )
    elif counts and counts[0] < FEW:
        sentences.append(f"{counts[0]} seeds: a test of so few finds large differences only.")
    return sentences


def absent(table: Compared, most: int | None = MOST_MISSING) -> list[str]:
    """Return the missing combinations with the commands that run them."""
    if not table.missing:
        return []
    lines = ["", f"{len(table.missing)} of {len(table.chosen.rows) * len(table.chosen.columns)} combinations have no run; to make them:"]
    lines += [f"  {command}" for command in missing_commands(table.chosen, table.folder, table.missing[:most])]
    return lines + ([f"  ... and {len(table.missing) - most} more"] if most and len(table.missing) > most else [])


def missing_commands(chosen: Chosen, folder: Path, missing: Sequence[tuple[Values, Values]]) -> list[str]:
    """Return commands for the missing (row, column) pairs whose overrides are known from runs of the same row and column."""
    commands = [overrides_at(chosen, position) for position in missing]
    unknown = commands.count(None)
    unknown_note = [f"({unknown} commands are not known: runs of version 1.0 do not say what made them)"] if unknown else []
    return [shlex.join(["fgl-bench", *words, *in_folder(folder)]) for words in commands if words is not None] + unknown_note


def in_folder(folder: Path) -> list[str]:
    """Return the override of a ``results_dir`` other than the default."""
    return [] if folder == DEFAULT_FOLDER else [f"results_dir={folder}"]


def overrides_at(chosen: Chosen, position: tuple[Values, Values]) -> list[str] | None:
    """Return the overrides of the run at (row, column): row keys from a run of the row, all others from a run of the column.

    The scenario follows the algorithm. None if a run does not store its overrides.
    """
    if position in chosen.runs:
        own = chosen.runs[position].overrides
        return None if own is None else [*own]
    row_overrides, column_overrides = (first_of(chosen, side, position[side]).overrides for side in (0, 1))
    if row_overrides is None or column_overrides is None:
        return None
    of_row = set(chosen.question.rows) | ({"scenario"} if "algorithm" in chosen.question.rows else set())
    of_row |= {*BUDGET} if of_row & {*BUDGET} else set()
    return [text for text in row_overrides if is_about(text, of_row)] + [text for text in column_overrides if not is_about(text, of_row)]


def first_of(chosen: Chosen, side: int, values: Values) -> Result:
    return next(run for position, run in chosen.runs.items() if position[side] == values)


def is_about(override: str, keys: set[str]) -> bool:
    """Return True if an override sets one of the keys, or a key of one of the groups in them."""
    key = override.lstrip("+~").partition("=")[0].replace("/", ".")
    return key in keys or next((name for prefix, name in GROUPS.items() if f"{key}.".startswith(f"{prefix}.")), None) in keys


def one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()))


def without_tags(name: str) -> str:
    """Escape a name so that a page does not read it as HTML."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain_cell(value: Any) -> Any:
    """Prefix strings that a spreadsheet would read as formulas (= + - @) with an apostrophe, except numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number(value) else value
