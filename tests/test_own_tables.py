"""``fgl-bench table`` and ``plot`` as a user calls them, from a sweep to a file for a paper."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.results.stored_runs import store
from tests.results.test_comparison import check_latex
from tests.warm import ROOT, command

TINY = (
    "dataset=csbm", "dataset.num_nodes=120", "dataset.num_edges=260", "dataset.num_features=24", "dataset.words_per_node=6", "rounds=2",
    "seeds=[0,1]", "progress=false", "threads=1",
)  # fmt: skip


def said(done, *, status=0):
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, str]:
    """The folder of a sweep, and what it printed."""
    folder = tmp_path_factory.mktemp("swept")
    return folder, said(command(folder, "-m", "algorithm=fedavg,fedsa_gcl", "num_clients=3,4", "lr=0.02", *TINY))


def test_a_sweep_ends_with_its_table_in_80_columns_and_the_command_that_makes_it_again(swept):
    folder, out = swept
    ending = out[out.index("\ntest accuracy in %, received model\n") + 1 :]
    assert max(map(len, ending.partition("this table again")[0].splitlines())) <= 80
    assert "num_clients=3" in ending and "\nfedsa_gcl " in ending
    again = said(command(folder, *shlex.split(ending.rpartition("  fgl-bench ")[2])))
    assert ending.startswith(again.rstrip("\n"))


@pytest.mark.parametrize("key", ["rounds", "trips"])
def test_a_sweep_over_the_budget_ends_with_its_table(tmp_path, key):
    rest = [text for text in TINY if not text.startswith("rounds=")]
    out = said(command(tmp_path, "-m", "algorithm=fedavg", "num_clients=3", f"{key}=3,6", *rest))
    assert f"{key}=3" in out and f"{key}=6" in out and "no table" not in out


def test_the_command_of_a_missing_run_makes_it(swept, tmp_path):
    folder, _ = swept
    line = ("algorithm=fedprox", "algorithm.mu=0.2", "num_clients=3", "lr=0.02", "results_dir=more", *TINY)
    said(command(tmp_path, *line))
    said(command(tmp_path, "-m", "algorithm=local", "num_clients=3,4", "lr=0.02", "results_dir=more", *TINY))
    lacking = said(command(tmp_path, "table", "more", "cols=num_clients", "sweep=all"))
    assert "1 of 4 combinations have no run" in lacking
    [made] = [text.strip() for text in lacking.splitlines() if text.startswith("  fgl-bench ")]
    assert "algorithm.mu=0.2" in made and "num_clients=4" in made
    said(command(tmp_path, *shlex.split(made)[1:], "progress=false"))
    whole = said(command(tmp_path, "table", "more", "cols=num_clients", "sweep=all"))
    assert "have no run" not in whole and "\nfedprox " in whole


@pytest.mark.parametrize("ending", ["md", "csv", "tex"])
def test_formats_go_to_files_or_to_the_terminal(swept, tmp_path, ending):
    folder, _ = swept
    line = ("table", str(folder / "results/runs"), "cols=num_clients")
    shown = said(command(tmp_path, *line, f"format={ending}"))
    assert said(command(tmp_path, *line, f"out=new/table.{ending}")) == f"written: new/table.{ending}\n"
    assert (tmp_path / f"new/table.{ending}").read_text(encoding="utf-8") == shown
    if ending == "tex":
        check_latex(shown)


DOCUMENT = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,graphicx}
\begin{document}
See Tables~\ref{tab:received} and \ref{tab:trained}.
\input{table.tex}
\end{document}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_latex_compiles_without_a_warning(swept, tmp_path):
    folder, _ = swept
    said(command(tmp_path, "table", str(folder / "results/runs"), "cols=num_clients", "out=table.tex"))
    (tmp_path / "paper.tex").write_text(DOCUMENT, encoding="utf-8")
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    _, again = (subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60) for _ in range(2))
    assert (tmp_path / "paper.pdf").is_file() and not re.search("Warning|Overfull|undefined", again.stdout), again.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["table", "nowhere"], "nowhere: there is no such folder; give the one that results_dir= named"),
        (["table"], "results/runs: there is no such folder"),
        (["table", "a", "b"], "a b: give one folder, and KEY=VALUE"),
        (["table", "runs", "row=x"], "row=x: unknown key; did you mean rows?"),
        (["table", "runs", "rows=algorithm", "rows=split"], "rows= is given twice"),
        (["table", "runs", "format=docx"], "format=docx: must be one of md, csv, tex"),
        (["table", "runs", "out=table.docx"], "out=table.docx: must end in .md, .csv, .tex"),
        (["table", "runs", "out=/dev/null/table.md"], "out=/dev/null/table.md: cannot be written"),
        (["table", "runs", "digits=many"], "digits=many: must be an integer from 0 to 6"),
        (["table", "runs", "where=lr=" + "9" * 5000], "where=lr=999"),
        (["table", "runs", "where=lr=[[[[["], "where=lr=[[[[[: no run has it"),
        (["table", "runs", "rows=algorithm.\n"], "rows=algorithm."),
        (["plot"], "plot what? fgl-bench plot curves|bars|lines|ranks|pareto|clients"),
        (["plot", "pie", "runs"], "pie: no kind of figure; allowed: bars, clients, confusion, curves, lines, pareto, ranks"),
        (["plot", "bars", "runs", "width=wide"], "width=wide: must be one of column, text, or inches from 1 to 40"),
        (["plot", "bars", "runs", "width=nan"], "width=nan: must be"),
        (["plot", "bars", "runs", "side=0"], "side=0: must be an integer from 1 to 20"),
        (["plot", "bars", "runs", "x=trips"], "x=trips: bars take no x="),
        (["plot", "curves", "runs", "x=miles"], "x=miles: curves take one of trips, rounds, bytes, time"),
        (["plot", "bars", "runs", "format=gif"], "format=gif: must be some of pdf, svg, png"),
        (["plot", "bars", "runs", "style=fancy"], "style=fancy: neither a file nor a style; allowed: neurips, ieee"),
        (["plot", "bars", "runs", "style=https://example.org/x.mplstyle"], "neither a file nor a style"),
        (["plot", "bars", "runs", "style=runs"], "style=runs: neither a file"),
        (["plot", "ranks", "runs"], "ranks need at least two rows, and two columns"),
        (["plot", "bars", "runs", "out=/dev/null/x"], "out=/dev/null/x: cannot be written"),
        (["plot", "curves", "runs", "metric=last"], "metric=last: curves show the runs' own metric only"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_by_one_line(tmp_path, line, message):
    store(tmp_path / "runs", "fedavg")
    told = said(command(tmp_path, *line), status=1)
    assert message in told and len(told.splitlines()) == 1 and "Traceback" not in told and len(told) < 2500


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    for dataset in ("cora", "pubmed"):
        for number, name in enumerate(("fedavg", "fedgta", "fed_pub", "fedsa_gcl")):
            store(folder / "runs", name, dataset, per_seed=(0.5 + number / 50, 0.52, 0.53))
    return folder


@pytest.mark.parametrize("kind", ["curves", "bars", "lines", "ranks", "pareto", "clients"])
def test_every_kind_of_figure_is_written_in_three_formats(compared, kind):
    out = said(command(compared, "plot", kind, "runs", "cols=dataset", f"out=fig/{kind}"))
    assert out.splitlines() == [f"written: fig/{kind}.{ending}" for ending in ("pdf", "svg", "png")]
    assert (compared / f"fig/{kind}.pdf").read_bytes()[:5] == b"%PDF-"
    assert b"Type3" not in (compared / f"fig/{kind}.pdf").read_bytes()


def test_few_panels_have_names_at_the_ends_of_lines(compared):
    said(command(compared, "plot", "curves", "runs", "cols=none", "where=dataset=cora", "x=trips", "width=7", "out=fig/one", "format=svg"))
    assert (compared / "fig/one.svg").read_text(encoding="utf-8").count("<!-- FedSA-GCL -->") == 2, "in the panel of either model"
    told = said(command(compared, "plot", "curves", "runs", "cols=none", "where=dataset=cora", "x=time"), status=1)
    assert "no curve over time is stored" in told


@pytest.mark.parametrize(("inches", "columns", "abreast"), [(7, 2, 4), (5.5, 2, 2), (5.5, 4, 2), (7, 4, 4), (5.5, 3, 3), (5.5, 5, 3)])
def test_both_models_of_a_column_are_at_the_same_place_of_a_line(inches, columns, abreast):
    from fgl_bench.results.plots.draw import number

    assert number("", inches, columns) == abreast


def test_lines_have_any_key_on_x_and_a_venue_has_its_width_and_fonts(compared):
    said(command(compared, "plot", "line", "runs", "x=dataset", "style=ieee", "out=fig/ieee", "format=svg"))
    text = (compared / "fig/ieee.svg").read_text(encoding="utf-8")
    assert 'width="252pt"' in text, "a column of 3.5 inches"
    assert "<!-- PubMed -->" in text and "<!-- FedSA-GCL -->" in text, "display names"
    told = said(command(compared, "plot", "lines", "runs", "x=dataset", "cols=dataset"), status=1)
    assert "give one of them" in told
    told = said(command(compared, "plot", "lines", "runs"), status=1)
    assert "lines need one key: x=KEY" in told


def test_of_more_rows_than_colors_the_best_are_in_color_and_a_note_names_the_others(tmp_path):
    from fgl_bench.results.plots.kinds import colored

    for number in range(11):
        store(tmp_path / "runs", f"m{number:02}", per_seed=(0.4 + number / 50, 0.4 + number / 50))
    done = command(tmp_path, "plot", "curves", "runs", "cols=dataset", "out=fig/many", "format=svg")
    said(done)
    assert "in gray: m00, m01, m02, m03\n" in done.stderr
    text = (tmp_path / "fig/many.svg").read_text(encoding="utf-8")
    assert "<!-- m04 -->" in text and "<!-- m03 -->" not in text and "#bbbbbb" in text
    import fgl_bench

    made = fgl_bench.table(tmp_path / "runs", cols="dataset")
    assert list(colored(made)) == [(f"m{number:02}",) for number in range(4, 11)]


def test_python_does_the_same(compared, tmp_path, monkeypatch):
    import fgl_bench

    monkeypatch.chdir(compared)
    made = fgl_bench.table("runs", cols="dataset", where={"algorithm": ["fedavg", "fedgta"]})
    assert str(made) + "\n" == said(command(compared, "table", "runs", "cols=dataset", "where=algorithm=fedavg,fedgta"))
    assert [path.name for path in fgl_bench.plot("bars", made, tmp_path / "bars.svg")] == ["bars.svg"]


def test_the_stored_cells_of_the_papers_are_a_folder_of_runs_too():
    where = "split=metis,sparsity=none,dataset=cora,citeseer,algorithm=fedavg,fedgta,local,local_epochs=1"
    done = command(ROOT, "table", "results/cells/fedsa_gcl", "cols=dataset", f"where={where}", "model_of=trained")
    assert done.returncode == 0 and "\nfedgta " in done.stdout, done.stderr
