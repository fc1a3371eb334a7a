"""A user's own tables: what is chosen, what is refused, which numbers and marks a cell has."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess

import numpy as np
import pandas
import pytest
from scipy import stats

from fgl_bench import UserError, table
from fgl_bench.results.choose import listed
from fgl_bench.results.frame import read_runs
from fgl_bench.results.question import conditions, matches, parts, question
from fgl_bench.results.render import fitting, plain
from fgl_bench.results.result_table import of_sweep, without_tags
from fgl_bench.results.statistics import holm
from fgl_bench.results.sweep_notes import Note, Sweep, note_of
from fgl_bench.results.sweeps import NAME, question_of, record
from hydra_plugins.fgl_bench_sweeper import report_sweep
from tests.results.stored_runs import store
from tests.results.summaries import summary

A, B, C = (0.80, 0.82, 0.81, 0.83), (0.79, 0.83, 0.80, 0.82), (0.60, 0.61, 0.59, 0.62)


@pytest.fixture
def runs(tmp_path):
    for dataset, shift in (("cora", 0.0), ("pubmed", 0.05)):
        for name, scores in (("fedavg", A), ("fedgta", B), ("fedsa_gcl", C)):
            store(tmp_path, name, dataset, per_seed=[score + shift for score in scores])
    return tmp_path


# ---- the language


def test_a_condition_s_values_are_split_at_commas_outside_of_brackets():
    assert parts("a=1,b=[0,1],c") == ["a=1", "b=[0,1]", "c"]
    assert conditions("num_clients=10,dataset=cora,citeseer,seeds=[0,1]") == {
        "num_clients": ("10",), "dataset": ("cora", "citeseer"), "seeds": ("[0,1]",),
    }  # fmt: skip
    assert conditions({"lr": 0.1, "dataset": ["cora", "citeseer"], "sparsity": None}) == {
        "lr": ("0.1",), "dataset": ("cora", "citeseer"), "sparsity": ("null",),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text", "same"),
    [(10, "10", True), (0.01, "1e-2", True), ([0, 1], "[0, 1]", True), (True, "true", True), (True, "1", False), (None, "null", True),
     ("cora", "cora", True), ("cora", "core", False), (5, "*", True), (1, "[", False)],
)  # fmt: skip
def test_a_value_is_what_its_text_stands_for(value, text, same):
    assert matches(value, text) is same


def test_a_question_reads_what_it_writes():
    asked = question("algorithm,lr", "dataset,split", "num_clients=10,dataset=a,b", "trained", "last")
    words = dict(text.split("=", 1) for text in asked.arguments)
    assert question(**words) == asked


# ---- numbers


def test_means_intervals_marks_and_ranks_are_those_worked_out_by_hand(runs):
    made = table(runs, cols="dataset", model_of="received")
    [block] = made.blocks
    score = block.scores[("fedavg",), ("cora",)]
    assert score.mean == pytest.approx(81.5)
    assert score.half == pytest.approx(stats.t.ppf(0.975, 3) * stats.tstd([100 * value for value in A]) / 2)
    adjusted = holm([stats.ttest_rel(A, B).pvalue, stats.ttest_rel(A, C).pvalue])
    standing = {name: block.tests[(name,), ("cora",)] for name in ("fedavg", "fedgta", "fedsa_gcl")}
    assert standing["fedavg"].best
    assert [standing[name].p for name in ("fedgta", "fedsa_gcl")] == pytest.approx(adjusted)
    assert adjusted[0] > 0.05 > adjusted[1] and standing["fedgta"].alike and not standing["fedsa_gcl"].alike
    assert block.ranks is not None and dict(block.ranks.ranks) == {"fedavg": 1.0, "fedgta": 2.0, "fedsa_gcl": 3.0}
    lines = str(made).splitlines()
    assert "81.5 ± 2.1 *" in lines[3] and "81.0 ± 2.9 ~" in lines[4] and re.search(r"60\.5 ± 2\.1 +65\.5", lines[5])
    assert "**81.5 ± 2.1**" in made.markdown() and "<u>81.0 ± 2.9</u>" in made.markdown()
    assert r"\textbf{81.5 $\pm$ 2.1}" in made.latex() and r"\underline{81.0 $\pm$ 2.9}" in made.latex()
    frame = made.frame()
    assert len(frame) == 6 and frame["best"].sum() == 2 and frame["not_different"].sum() == 4


def test_the_legend_counts_intervals_wider_than_a_third_of_the_scale(tmp_path):
    """Of two seeds that differ by d, the half-width is 6.35 d: 33.3 points wide at d = 2.62."""
    for name, gap in (("fedavg", 0.0262), ("fedgta", 0.0263), ("local", 0.4)):
        store(tmp_path, name, per_seed=(0.5, 0.5 + gap))
    made = table(tmp_path, cols="dataset", model_of="received")
    widths = [2 * score.half for score in made.blocks[0].scores.values()]
    assert sorted(width > 100 / 3 for width in widths) == [False, True, True]
    assert all("third of the scale (33 points): 2 of 3" in " ".join(shown.split()) for shown in (str(made), made.markdown(), made.latex()))


def test_a_seed_without_a_score_competes_with_nobody(tmp_path):
    store(tmp_path, "fedavg", per_seed=(0.5, 0.5))
    store(tmp_path, "fedgta", per_seed=(0.9, None))
    made = table(tmp_path, cols="dataset", model_of="received")
    assert "90.0 (1/2)" in str(made) and "50.0 ± 0.0 *" in str(made)


def test_fewest_trips_are_best(tmp_path):
    for name, trips in (("fedavg", [40, 44]), ("fedgta", [20, 21])):
        reached = {"mean": 1.0, "ci95": 1.0, "reached": 2, "censored_mean": 1.0, "per_seed": trips}
        store(tmp_path, name, client_trips={"total": 50, "to_target": {"0.7": {"received": reached, "trained": reached}}})
    made = table(tmp_path, cols="dataset", model_of="received", metric="trips_to_0.70")
    assert made.blocks[0].tests[("fedgta",), ("cora",)].best and "20.5" in str(made) and "(fewest)" in str(made)
    assert "15.0 ± " in str(table(tmp_path, cols="none", model_of="received", metric="trips_to_0.3")), "from the history"
    with pytest.raises(UserError, match=r"metric=trips_to_9: .*trips_to_0.7"):
        str(table(tmp_path, metric="trips_to_9"))


def test_clients_and_the_last_point_are_metrics_too(runs):
    for metric in ("last", "worst_client", "best_client", "accuracy"):
        assert "81.5" in str(table(runs, cols="dataset", model_of="received", metric=metric))


def test_rounds_and_bytes_to_a_target_are_those_of_the_first_point_that_reaches_it(tmp_path):
    store(tmp_path, "fedavg", per_seed=(0.5, 0.8))  # at trips 0, 10 and 20: 0, 0.25, 0.5 and 0, 0.4, 0.8
    of = {cost: table(tmp_path, cols="none", metric=f"{cost}_to_0.3").blocks[0].scores[("fedavg",), ()] for cost in ("rounds", "bytes")}
    assert of["rounds"].per_seed == {0: 10.0, 1: 5.0} and of["rounds"].lower
    assert of["bytes"].per_seed == pytest.approx({0: 400e-6, 1: 200e-6})
    trained = table(tmp_path, cols="none", metric="rounds_to_0.3").blocks[1].scores[("fedavg",), ()]
    assert trained.per_seed == {0: None, 1: 10.0} and not trained.complete
    assert "MB up and down to a validation accuracy of 30 %" in str(table(tmp_path, metric="bytes_to_0.3"))
    with pytest.raises(UserError, match=r"metric=rounds_to_1.5: .*rounds_to_TARGET"):
        str(table(tmp_path, metric="rounds_to_1.5"))


def test_differences_from_a_named_row_are_paired_by_seed(runs):
    made = table(runs, cols="dataset", model_of="received", against="fedgta")
    [block] = made.blocks
    gaps = 100 * (np.array(A) - np.array(B))
    gap = block.differences[("fedavg",), ("cora",)]
    assert gap.mean == pytest.approx(gaps.mean()) and gap.half == pytest.approx(stats.t.ppf(0.975, 3) * gaps.std(ddof=1) / 2)
    p = holm([stats.ttest_rel(A, B).pvalue, stats.ttest_rel(C, B).pvalue])
    assert [block.differences[(name,), ("cora",)].p for name in ("fedavg", "fedsa_gcl")] == pytest.approx(p)
    assert ("fedgta",) not in {row for row, _ in block.differences} and block.ranks is None and not block.tests
    assert f"+{gaps.mean():.1f} ± {gap.half:.1f}, p {gap.p:.3f}" in str(made) and "81.0 ± 2.9" in str(made)
    frame = made.frame().set_index(["algorithm", "dataset"])
    assert frame.loc[("fedavg", "cora"), "difference"] == pytest.approx(gap.mean) and frame.loc[("fedavg", "cora"), "p_holm"] == gap.p
    signed = table(runs, cols="dataset", model_of="received", against="fedgta", test="wilcoxon")
    by_hand = holm([stats.wilcoxon(np.array(each) - np.array(B)).pvalue for each in (A, C)])
    assert signed.blocks[0].differences[("fedavg",), ("cora",)].p == pytest.approx(by_hand[0])
    assert "4 seeds: the p-values of this test are at least 0.12" in " ".join(str(signed).split())


def test_clients_are_rows_or_columns_and_do_not_compete(runs, tmp_path):
    made = table(runs, rows="client", cols="algorithm", where="dataset=cora", model_of="received")
    assert [row for (row,) in made.chosen.rows] == ["0", "1"] and not made.blocks[0].tests and "best of a column" not in str(made)
    assert made.blocks[0].scores[("1",), ("fedavg",)].per_seed == {seed: 100 * value for seed, value in enumerate(A)}
    across = table(runs, cols="client", where="dataset=cora", model_of="trained")
    assert across.blocks[0].scores[("fedavg",), ("1",)].mean is None, "client 1 has no test node"
    assert len(table(runs, cols="dataset,client", where="client=0").chosen.columns) == 2
    with pytest.raises(UserError, match="metric=last: one client is scored by accuracy alone"):
        str(table(runs, cols="client", where="dataset=cora", metric="last"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"against": "fedav"}, "against=fedav: no such row; did you mean fedavg or fedgta?"),
        ({"against": "fedavg", "test": "z"}, "test=z: must be one of t, wilcoxon"),
        ({"test": "wilcoxon"}, "test=wilcoxon: needs against="),
    ],
)
def test_a_comparison_that_cannot_be_made_is_one_line(runs, asked, message):
    with pytest.raises(UserError, match=re.escape(message)):
        str(table(runs, cols="dataset", **asked))


def test_one_seed_is_not_tested(tmp_path):
    store(tmp_path, "fedavg", per_seed=(0.5,))
    store(tmp_path, "fedgta", per_seed=(0.4,))
    made = str(table(tmp_path, cols="none", model_of="trained"))
    assert "25.0 *" in made and "~" not in made and "t-test" not in made


# ---- refusals


def test_what_differs_and_is_not_named_is_refused_with_its_key(runs):
    store(runs, "fedprox", per_seed=A, config={"lr": 0.1})
    with pytest.raises(UserError, match=r"neither .*: lr=0.01, 0.1; try: fgl-bench table .* where=lr=0.") as refused:
        table(runs, cols="dataset")
    assert "\n" not in str(refused.value)
    assert len(table(runs, cols="dataset", where="lr=0.01").chosen.rows) == 3
    assert len(table(runs, cols="dataset", where="lr=*").chosen.rows) == 4


def test_keys_of_a_method_may_differ_between_methods_but_not_within_one(tmp_path):
    store(tmp_path, "fedprox", "cora", config={"algorithm": {"mu": 0.1}})
    store(tmp_path, "fedavg", "cora")
    assert table(tmp_path, cols="dataset").chosen.rows == (("fedavg",), ("fedprox",))
    store(tmp_path, "fedprox", "pubmed", config={"algorithm": {"mu": 0.01}})
    with pytest.raises(UserError, match=r"names: algorithm.mu=0.1, 0.01; try: .* where=algorithm.mu=0.[01]*,null"):
        table(tmp_path, cols="dataset")


def test_a_scenario_follows_from_the_method_but_its_keys_do_not(tmp_path):
    store(tmp_path, "fedavg")
    store(tmp_path, "fedsa_gcl")
    assert "semi_async (fedsa_gcl)" in str(table(tmp_path))
    store(tmp_path, "fedgta", config={"scenario": {"slow_fraction": 0.3}})
    with pytest.raises(UserError, match="scenario.slow_fraction=null, 0.3"):
        table(tmp_path)


def test_a_budget_that_is_not_named_is_refused_even_where_the_clients_are_chosen(tmp_path):
    store(tmp_path, "fedavg")
    store(tmp_path, "fedgta", config={"rounds": 500, "trips": 1000})
    with pytest.raises(UserError, match="rounds=10, 500"):
        table(tmp_path, where="num_clients=2")


def test_rounds_follow_from_the_number_of_clients(tmp_path):
    for clients in (2, 4):
        store(tmp_path, "fedavg", clients=clients)
    assert table(tmp_path, cols="num_clients").chosen.columns == (("2",), ("4",))


def test_two_runs_of_one_cell_are_refused_with_the_way_to_choose(runs):
    store(runs, "fedavg", "cora", per_seed=A, config={"lr": 0.1})
    with pytest.raises(UserError, match=r"two runs are fedavg on cora: they differ in lr=.*; try: .* where=lr="):
        table(runs, cols="dataset")


def test_of_an_edited_method_the_last_version_counts(tmp_path):
    store(tmp_path, "fedavg")
    store(tmp_path, "mine", per_seed=(0.1, 0.1), config={"code": {"mine:mine.py": "a"}})
    store(tmp_path, "mine", per_seed=(0.9, 0.9), config={"code": {"mine:mine.py": "b"}}, finished="2027-01-02T03:04:05+00:00")
    made = str(table(tmp_path, model_of="received"))
    assert "90.0 ± 0.0 *" in made and "10.0" not in made and "1 run(s) of an earlier version" in made


def test_a_run_without_a_key_that_came_later_gives_way_to_the_run_with_its_default(tmp_path):
    store(tmp_path, "fedavg", per_seed=(0.1, 0.1))
    store(tmp_path, "fedavg", per_seed=(0.9, 0.9), config={"patience": None}, finished="2027-01-02T03:04:05+00:00")
    made = str(table(tmp_path, model_of="received"))
    assert "90.0 ± 0.0" in made and "10.0" not in made


def test_methods_whose_scores_are_equal_in_every_seed_are_named(tmp_path):
    for dataset, third in (("cora", A), ("citeseer", C)):
        store(tmp_path, "fedavg", dataset, per_seed=A)
        store(tmp_path, "fedprox", dataset, per_seed=A)
        store(tmp_path, "moon", dataset, per_seed=third)
        store(tmp_path, "fedgta", dataset, per_seed=A[::-1])  # equal on average only
    made = " ".join(str(table(tmp_path)).split())
    assert "fedavg, fedprox, moon: equal scores in every seed of 1 of 2 columns." in made
    assert "fedavg, fedprox: equal scores in every seed of 1 of 2 columns." in made
    assert "fedgta:" not in made and made.count("equal scores") == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"rows": "algoritm"}, "rows=algoritm: no run has this key; did you mean algorithm or"),
        ({"rows": ""}, "rows= must name at least one key"),
        ({"rows": "dataset"}, "dataset cannot be in rows= and in cols="),
        ({"cols": "split,split"}, "must be keys, each once"),
        ({"where": "dataset=corra"}, "where=dataset=corra: no run has it; there are cora, pubmed"),
        ({"where": "cora"}, "where=cora: must be KEY=VALUE"),
        ({"where": "nonsense=1"}, "where=nonsense: no run has this key"),
        ({"model_of": "mine"}, "model_of=mine: must be one of received, trained, both"),
        ({"digits": 9}, "digits=9: must be an integer from 0 to 6"),
    ],
)
def test_mistakes_are_told_with_the_key(runs, asked, said):
    with pytest.raises(UserError, match=re.escape(said)):
        table(runs, **asked)


def test_a_metric_that_no_run_has_is_told_with_those_that_there_are(runs):
    with pytest.raises(UserError, match="metric=macro_f1: .* has no such number; allowed: .*accuracy"):
        str(table(runs, metric="macro_f1"))
    with pytest.raises(UserError, match="metric=wurst_client: .*did you mean worst_client"):
        str(table(runs, metric="wurst_client"))


def test_a_damaged_run_is_left_out_with_a_warning(runs, capsys):
    run = store(runs, "fedprox")
    (run / "summary.json").write_text("{", encoding="utf-8")
    assert len(table(runs, cols="dataset").chosen.rows) == 3
    assert "is left out: not readable as json" in capsys.readouterr().err


# ---- formats


def check_latex(text: str) -> None:
    """Braces and environments are balanced, every row has as many cells as its head has columns, nothing special is bare."""
    body = re.sub(r"(?m)(?<!\\)%.*$", "", text)
    assert body.count("{") - body.count(r"\{") == body.count("}") - body.count(r"\}")
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{([\w*]+)\}", body):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    for columns, inner in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", body, re.S):
        lines = [line for line in inner.splitlines() if line.endswith(r"\\")]
        assert len(lines) > 1
        for line in lines:
            wide = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert len(re.findall(r"(?<!\\)&", line)) + 1 + wide == len(columns), line
        for _, first, last in re.findall(r"\\cmidrule(\(lr\))\{(\d+)-(\d+)\}", inner):
            assert 2 <= int(first) <= int(last) <= len(columns)
    assert not re.search(r"(?<!\\)[_#]", re.sub(r"\\label\{.*?\}", "", body))


@pytest.fixture
def many(tmp_path):
    for clients in (2, 4, 6):
        for split in ("metis", "louvain"):
            for dataset in ("cora", "pubmed"):
                for name, score in (("fed_pub", 0.5), ("local", 0.6)):
                    store(tmp_path, name, dataset, split, (score, score + 0.01), clients)
    return tmp_path


def test_latex_is_well_formed_in_parts_of_a_page_s_width(runs, many):
    text = table(many, cols="num_clients,dataset,split", where="algorithm=fed_pub,local").latex()
    check_latex(text)
    assert text.count(r"\begin{tabular}") == 4 and r"\begin{table*}" in text
    assert all(len(columns) <= 10 for columns in re.findall(r"\\begin\{tabular\}\{(\w+)\}", text))
    for cols in ("none", "dataset"):
        check_latex(table(runs, cols=cols, where="dataset=cora,num_clients=2,algorithm=fedavg,fedgta").latex())


@pytest.mark.skipif(not (shutil.which("pdflatex") or shutil.which("tectonic")), reason="needs pdflatex or tectonic")
def test_latex_compiles_and_fits_the_page(many, tmp_path):
    text = table(many, cols="num_clients,dataset,split").latex()
    page = r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx}\begin{document}" + "\n" + text + r"\end{document}"
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error"] if shutil.which("pdflatex") else ["tectonic", "--print"]
    done = subprocess.run([*line, "page.tex"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "page.pdf").is_file() and "Overfull \\hbox" not in done.stdout


def test_columns_go_to_another_part_where_the_width_ends():
    heads, rows = ["a", "b", "c"], [["xx", "yyyy", "z"]]  # 5 (a heading is padded), 6 and 3 letters with two spaces between
    assert list(fitting(heads, rows, 14)) == [[0, 1, 2]] and max(map(len, plain(heads, rows, 14).splitlines())) == 14
    assert list(fitting(heads, rows, 13)) == [[0, 1], [0, 2]]


def test_a_terminal_s_lines_are_at_most_its_width(many):
    made = table(many, cols="num_clients,dataset,split")
    assert max(map(len, str(made).splitlines())) <= 80
    for row in ("fed_pub", "local"):
        assert str(made).count(f"\n{row} ") == 8  # two models; three parts of four columns and one of the ranks


# ---- the end of a sweep


def test_without_a_choice_the_newest_sweep_is_shown_with_its_own_keys(runs, capsys):
    """Also where the folder has other runs, and by the command that the sweep ended with."""
    swept = [run for run in read_runs(runs) if run.summary["dataset"] == "cora"]
    store(runs, "fedavg", "cora", per_seed=A, config={"lr": 0.5}, finished="2026-11-20T00:00:00+00:00")
    first = record(runs, [run.folder for run in swept[:2]], "fgl-bench -m algorithm=a,b", question_of(["algorithm", "dataset"]))
    number = record(runs, [run.folder for run in swept], "fgl-bench -m lr=1,2", question_of(["num_clients", "algorithm"]))
    said = of_sweep(swept, question_of(["num_clients", "algorithm"]), runs, number, 80)
    assert (first, number) == (1, 2) and said.endswith(f"fgl-bench table {runs} sweep=2")
    assert str(table(runs)) == str(table(runs, sweep=2)) and str(table(runs)) in said
    note = capsys.readouterr().err.splitlines()[0]
    assert note.startswith("note: 3 of 7 runs") and "lr=1,2" in note and "sweep=all" in note and "sweep=1 to 2" in note
    assert len(table(runs, sweep=1).chosen.runs) == 2
    assert len(table(runs, sweep="all", where="lr=0.01").chosen.runs) == 6
    with pytest.raises(UserError, match="sweep=3: must be all or the number of a sweep: 1, 2"):
        table(runs, sweep=3)


def test_a_run_damaged_meanwhile_is_not_in_the_sweep_s_table(runs, capsys):
    first, *others = sorted(path.parent for path in runs.rglob("summary.json"))
    (first / "summary.json").write_text("{", encoding="utf-8")
    report_sweep([first, *others], [[f"algorithm={name}", f"dataset={data}"] for name in ("a", "b", "c") for data in ("cora", "pubmed")])
    assert len(re.findall(r"\d ± \d", capsys.readouterr().out)) == 5 * 2


def test_the_problem_of_a_run_goes_to_stderr(capsys):
    Sweep([["lr=1"], ["lr=2"]], elsewhere=False).report(Note(1, False, "scores", "warning: it diverged"))
    said = capsys.readouterr()
    assert "lr=2\n  scores" in said.out and said.err == "warning: it diverged\n"


def test_trials_of_a_search_stand_apart(runs, capsys):
    trials = [store(runs, "fedavg", "cora", per_seed=A, config={"lr": lr}) for lr in (0.5, 0.6)]
    assert record(runs, trials, "fgl-bench tune ...", None, search=True) == 1
    assert len(table(runs).chosen.runs) == 6 and "2 trials of searches are left out; sweep=1 shows them" in capsys.readouterr().err
    assert list(table(runs, rows="lr", sweep=1).chosen.rows) == [("0.5",), ("0.6",)]
    with pytest.raises(UserError, match="lr="):
        table(runs, sweep="all")


def test_runs_made_since_join_the_newest_sweep_if_they_can_be_compared(runs, capsys):
    record(runs, [run.folder for run in read_runs(runs)], "fgl-bench -m ...", question_of(["algorithm", "dataset"]))
    with (runs / NAME).open("a", encoding="utf-8") as file:
        file.write("damaged\n")
    store(runs, "local", "cora", per_seed=B, finished="2999-01-01T00:00:00+00:00")
    assert len(table(runs).chosen.runs) == 7 and not capsys.readouterr().err
    store(runs, "local", "cora", per_seed=B, config={"lr": 0.7}, finished="2999-01-01T00:00:00+00:00")
    assert len(table(runs).chosen.runs) == 6 and "6 of 8 runs" in capsys.readouterr().err


def test_a_refusal_names_every_key_and_ends_with_a_command_that_works(runs):
    different = {"lr": 0.1, "weight_decay": 0.3, "local_epochs": 7, "opt_state": "reset", "agg_weight": "nodes", "seeds": [5, 6, 7, 8]}
    store(runs, "fedprox", per_seed=A, config=different, finished="2999-01-01T00:00:00+00:00")
    with pytest.raises(UserError) as refused:
        table(runs, cols="dataset")
    message, _, command = str(refused.value).rpartition("; try: fgl-bench table ")
    assert all(f"{key}=" in message for key in different)
    folder, *words = shlex.split(command)
    assert list(table(folder, **dict(word.split("=", 1) for word in words)).chosen.rows) == [("fedprox",)]


def test_the_csv_has_the_seeds_scores_unrounded(tmp_path):
    store(tmp_path, "fedavg", per_seed=(1 / 3, 2 / 3))
    written = pandas.read_csv(io.StringIO(table(tmp_path, model_of="received").csv()))["per_seed"][0]
    assert [float(text) for text in written.split()] == [100.0 * (1 / 3), 100.0 * (2 / 3)]


def test_runs_under_way_are_hidden_and_say_nothing(runs, capsys):
    first, *others = sorted(path.parent for path in runs.rglob("summary.json"))
    first.rename(first.with_name(f".{first.name}.checkpoint"))
    assert {run.folder for run in read_runs(runs)} == {*others} and capsys.readouterr().err == ""


def test_a_run_of_a_sweep_is_noted_with_the_scores_of_the_selection(tmp_path):
    stats = {"mean": 0.25, "std": None, "ci95": None, "per_seed": [0.25]}
    kept = summary({"lr": 0.1}, [0.5])
    kept["test"]["trained"]["selected"] = {"client": {"macro": stats}}
    note = note_of(3, kept, tmp_path, False, "client", "macro")
    assert (note.number, note.failed, note.problem) == (3, False, "")
    assert note.text == f"test metric received not recorded, trained 25.00 (1 s)\n  {tmp_path}"
    assert "received 50.00, trained 50.00 (complete already)" in note_of(3, kept, tmp_path, True, "federation", "weighted").text


def test_names_keep_their_words_in_latex_and_none_is_html_or_a_formula(tmp_path):
    for name in ("my graph.npz", "your graph.npz"):
        store(tmp_path, "fedavg", name)
    store(tmp_path, "=cmd|x", "my graph.npz", config={"lr": -0.5})
    store(tmp_path, "<b>loud</b>", "my graph.npz")
    made = table(tmp_path, where="lr=*")
    tex, md, plain = made.latex(), made.markdown(), made.csv()
    check_latex(tex)
    assert tex.count("my graph.npz") and tex.count("your graph.npz") and "&lt;b&gt;loud" in md
    assert all("<b>" not in line or line.startswith("    fgl-bench ") for line in md.splitlines()), "code is not read as HTML"
    read = pandas.read_csv(io.StringIO(plain))
    assert set(read["algorithm"]) == {"fedavg", "'=cmd|x", "<b>loud</b>"}
    assert made.frame()["algorithm"].str.startswith("=").any(), "Python gets the names themselves"
    negative = table(tmp_path, rows="lr,algorithm", cols="dataset").csv()
    assert "\n-0.5," in negative, "a number is no formula"


def test_names_are_escaped_and_long_lists_cut():
    assert without_tags("<a & b>") == "&lt;a &amp; b&gt;"
    assert listed(range(4)) == "0, 1, 2, 3" and listed(range(6)) == "0, 1, 2, 3 and 2 more"


def test_a_line_break_in_a_value_does_not_leave_the_comment_of_a_missing_run(tmp_path):
    store(tmp_path, "fedavg", config={"opt_state": "a\n\\input{x}\x1b[2J"})
    store(tmp_path, "local", "pubmed", config={"opt_state": "a\n\\input{x}\x1b[2J"})
    made = table(tmp_path)
    assert len(made.missing) == 2
    rest = made.latex().rpartition("\\end{table")[2].splitlines()[1:]
    assert len(rest) > 1 and all(line.startswith("%") for line in rest) and "\x1b" not in "".join(rest)
