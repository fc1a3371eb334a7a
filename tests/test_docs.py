"""README.md and docs/: every command and every example runs, every quoted table is what its command prints."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from omegaconf import OmegaConf
from torch_geometric.data import Data

import fgl_bench
from fgl_bench.cli.arguments import get_args_parser
from fgl_bench.cli.check import examine
from fgl_bench.cli.commands import COMMANDS, stored
from fgl_bench.cli.leaderboard import KEYS as BOARD_KEYS
from fgl_bench.cli.table import target as table_file
from fgl_bench.cli.tune import read_space
from fgl_bench.config.choices import FILE, GROUPS, file_of
from fgl_bench.config.compose import Composer
from fgl_bench.config.groups import build
from fgl_bench.config.identity import canonical_names, without_later
from fgl_bench.results.cells import read_cells
from fgl_bench.results.plots.draw import OPTIONS
from fgl_bench.results.plots.kinds import KINDS
from fgl_bench.results.question import KEYS, question, read_words
from fgl_bench.runner.validation import check_configuration
from scripts.quote_commands import page, pages
from tests.warm import ROOT, command

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A comment stands behind three spaces.
LINE = re.compile(r"^    (?:torchrun --nproc-per-node=\d -m )?(fgl[-_]bench .*?)(?:   .*)?$", re.MULTILINE)
INLINE = re.compile(r"`(fgl-bench [^`\n]+ [^`\n]+)`")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|[<|]|\.\.\.")


def lines_of(path):
    text = path.read_text(encoding="utf-8")
    return [*LINE.findall(text), *(line for line in INLINE.findall(text) if not PLACEHOLDER.search(line))]


COMMANDS_SHOWN = sorted({(path.relative_to(ROOT).as_posix(), line) for path in PAGES for line in lines_of(path)})
TINY = (
    "dataset.num_nodes=120", "dataset.num_edges=260", "dataset.num_features=24", "dataset.words_per_node=6", "rounds=2", "num_clients=3",
    "progress=false", "threads=1",
)  # fmt: skip
STAND_INS = {"dataset=citeseer,pubmed": "dataset=csbm_cora,csbm_pubmed", "num_clients=10": "num_clients=3"}


def said(done) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- every command


@pytest.fixture(scope="module")
def compose():
    return Composer()


@pytest.mark.audit
@pytest.mark.parametrize(("where", "line"), COMMANDS_SHOWN)
def test_a_command_names_what_there_is(where, line, compose):
    first, *rest = shlex.split(line)[1:]
    if first not in COMMANDS:
        options = get_args_parser().parse_args([first, *rest])
        if options.config_dir:
            return  # choices of the user's own; the guides' are run below
        for overrides in one_by_one(options.overrides):
            check_configuration(compose(overrides))
    elif first in ("table", "plot"):
        kind = [rest.pop(0)] if first == "plot" else []
        words, _ = read_words(rest, (*KEYS, "sweep", *(OPTIONS if kind else ("format", "out", "digits", "against", "test"))), "")
        question(**{key: values if key == "where" else values[0] for key, values in words.items() if key in KEYS})
        assert set(kind) <= KINDS.keys()
        if not kind:
            table_file(words.get("out", [""])[0], words.get("format", [""])[0])
    elif first in ("show", "cp"):
        assert (first == "show" and stored(rest[0])) or file_of(rest[0])
    elif first == "ls":
        assert not rest or rest[0] in GROUPS
    elif first == "tune":
        assert rest[0].endswith(".yaml") or read_space(rest[0])
    elif first == "leaderboard":
        assert set(read_words(rest, BOARD_KEYS, "")[0]) <= {*BOARD_KEYS}
    elif first == "submit":
        assert rest[0] == "--check" and len(rest) == 2
    elif first == "report":
        assert set(read_words(rest, ("out", "papers", "placed", "sweep", "where"), "")[0]) <= {"papers", "placed", "sweep", "where", "out"}
    elif first == "predict":
        assert 1 <= len(rest) - len([text for text in rest if "=" in text]) <= 2
    else:
        assert first in ("check", "place", "import") and (rest[0].endswith((".py", ".csv")) or file_of(rest[0]))


def one_by_one(overrides: list[str]) -> list[list[str]]:
    """What a sweep composes: every value of every key once, beside the first values of the others."""
    own = [text.partition("=")[0] for text in overrides if FILE.search(text)]  # classes in the reader's files, and their keys
    plain = [text for text in overrides if not text.startswith(("hydra", *own, *(f"{group}." for group in own)))]
    several = [(text.partition("=")[0], [text.partition("=")[2]] if "[" in text else text.partition("=")[2].split(",")) for text in plain]
    base = [f"{key}={values[0]}" for key, values in several]
    return [base] + [[*base, f"{key}={value}"] for key, values in several for value in values[1:]]


def test_targets_of_make_and_scripts_are_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"{path.name}: make {name}"
        for name in re.findall(r"`((?:scripts|tests)/[\w/.]+)[` ]", text):
            assert (ROOT / name).exists(), f"{path.name}: {name}"


@pytest.mark.parametrize("path", [*PAGES, *sorted(ROOT.glob("*.md")), ROOT / "docs/first_steps.ipynb"], ids=lambda path: path.name)
def test_links_lead_somewhere_in_a_checkout(path):
    for name in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / name).exists(), f"{path.name}: {name}"


# ---- what is quoted


@pytest.mark.audit
def test_quoted_tables_are_what_their_commands_print():
    texts = {path: path.read_text(encoding="utf-8") for path in pages()}
    assert {path.name for path in texts} >= {"README.md", "tutorial.md"}
    made: dict[str, str] = {}
    for path, text in texts.items():
        filled = page(text, lambda line: made.setdefault(shlex.join(line), said(command(ROOT, *line))))
        assert filled == text, f"{path.name}: run make numbers"


@pytest.mark.audit
def test_the_quoted_runs_are_those_of_the_question(compose):
    """A reader who gives the command of README.md gets this table, but for the processor's rounding."""
    [line] = [text for where, text in COMMANDS_SHOWN if where == "README.md" and " -m " in text]
    asked = dict(text.split("=") for text in shlex.split(line)[2:])
    cells = read_cells(ROOT / "results/cells/first_question")
    found = {(cell["algorithm"], cell["dataset"], cell["split"]) for cell in cells}
    each = [asked[key].split(",") for key in ("algorithm", "dataset", "split")]
    assert found == {(a, b, c) for a in each[0] for b in each[1] for c in each[2]} and len(found) == len(cells)
    for cell in cells:
        cfg = compose(shlex.split(cell["command"])[1:])
        assert (cell["num_clients"], cell["seeds"]) == (int(asked["num_clients"]), json.loads(asked["seeds"]))
        assert (cfg.num_clients, cfg.seeds) == (cell["num_clients"], cell["seeds"]) and cell["client_trips"]["total"] == 2000
        for group in ("algorithm", "model", "scenario"):
            named = without_later({group: canonical_names(OmegaConf.to_container(cfg[group], resolve=True))})
            assert named[group] == cell["config"][group]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_readme_and_tutorial_run_in_their_order_in_one_folder(tmp_path, monkeypatch, capsys):
    """Every command and every Python block as printed, with fewer rounds and on generated graphs; none refuses."""
    readme, tutorial = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tutorial.md"))
    [quickstart] = re.findall(r"^quickstart:.*\n\t.*/fgl-bench(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    (tmp_path / "my_method.py").write_text(blocks("own_method.md")[0], encoding="utf-8")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "graph.npz", x=rng.random((60, 5)), edge_index=rng.integers(0, 60, (2, 150)), y=rng.integers(0, 2, 60))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    run, printed = fgl_bench.run, {}

    def smaller(algorithm, dataset, **settings):
        small = {name.replace(".", "__"): yaml.safe_load(value) for name, value in (text.split("=") for text in TINY) if name != "progress"}
        return run(algorithm, {"pubmed": "csbm_pubmed"}.get(dataset, "csbm_cora"), **{**settings, **small})

    monkeypatch.setattr(fgl_bench, "run", smaller)
    shell_line, indented = r"^    (make quickstart|fgl-bench .*?)(?:   .*)?$", r"^    (import fgl_bench\n(?:    .*\n|\n)+)"
    step = re.compile(rf"{shell_line}|{indented}|```python\n([^`]*)```", re.MULTILINE)
    for shell, python, block in (match.groups() for text in (readme, tutorial) for match in step.finditer(text)):
        if not shell:
            runs = len([*tmp_path.rglob("summary.json")])
            exec(textwrap.dedent(f"    {python}") if python else block, {})  # noqa: S102 (our own pages)
            assert python or len([*tmp_path.rglob("summary.json")]) == runs, "Python finds the runs of the command line"
            continue
        line = shell.replace("make quickstart", f"fgl-bench {quickstart}")
        words = [STAND_INS.get(word, word) for word in shlex.split(line)[1:]]
        if words[0] == "place" or "task=" in line:  # tests/test_placing.py and tests/test_tasks.py; graphs need data
            continue
        if words[0] not in COMMANDS and words[0] != "--help":
            words += [text for text in TINY if "custom" not in line or not text.startswith("dataset.")]
        printed[shell] = said(command(tmp_path, *words))
    capsys.readouterr()
    [sweep] = (text for line, text in printed.items() if " -m " in line)
    assert "table again" in sweep and printed["fgl-bench table"].strip() in sweep, "the newest sweep, as it was printed"
    quoted = re.search(r"```text\n(.*?)```", readme, re.DOTALL)[1]
    assert shape(printed["fgl-bench table"].replace("csbm_cora", "citeseer").replace("csbm_pubmed", "pubmed")) == shape(quoted)
    assert (tmp_path / "table.tex").read_text(encoding="utf-8").count(r"\toprule") == 2
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".pdf", ".svg", ".png"}
    assert (tmp_path / "results/report.html").is_file()


def shape(table: str) -> list[list[str]]:
    """The words of a table, without numbers, marks, rules, the note on wide intervals, which small runs have, and what all runs share."""
    lines = [line for line in table.strip().splitlines() if not line.startswith(("Intervals wider", "In all runs"))]
    return [[word for word in line.split() if not re.fullmatch(r"[-\d.±*~]+", word)] for line in lines]


# ---- examples


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides" / name).read_text(encoding="utf-8"), re.DOTALL)


def guide_lines(name: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for where, line in COMMANDS_SHOWN if where == f"docs/guides/{name}"]


@pytest.mark.nightly
def test_the_guide_to_own_methods(tmp_path, capsys):
    method, *_ = blocks("own_method.md")  # of the others: tests/algorithms/test_frozen.py
    (tmp_path / "my_method.py").write_text(method, encoding="utf-8")
    text = (ROOT / "docs/guides/own_method.md").read_text(encoding="utf-8")
    (tmp_path / "my_space.yaml").write_text(re.search(r"^    (algorithm\.keep: .*)$", text, re.MULTILINE)[1], encoding="utf-8")
    for words in guide_lines("own_method.md"):
        if words[0] == "check":
            assert examine(str(tmp_path / words[1]), words[2:]) == 0, capsys.readouterr().out
        elif words[0] == "tune":
            said(command(tmp_path, *words, *TINY, "seeds=[0]", "trials=1"))
        elif words[0] != "place":  # tests/test_placing.py
            assert "keeping" in said(command(tmp_path, *words, *TINY, "seeds=[0]"))


@pytest.mark.nightly
def test_the_guide_to_own_data(tmp_path, capsys, monkeypatch):
    graph, tables, from_tables, objects, split, net, metric = blocks("own_data.md")
    (tmp_path / "my_split.py").write_text(split, encoding="utf-8")
    (tmp_path / "my_net.py").write_text(net, encoding="utf-8")
    (tmp_path / "my_metrics.py").write_text(metric, encoding="utf-8")
    text = (ROOT / "docs/guides/own_data.md").read_text(encoding="utf-8")
    (tmp_path / "mine/model").mkdir(parents=True)
    (tmp_path / "mine/model/one_hop.yaml").write_text(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    for code in (graph, tables, from_tables, objects):
        exec(code, {})  # noqa: S102 (our own page)
    for words in sorted(guide_lines("own_data.md"), key=lambda words: (words[0] == "table", words[0] != "import")):  # imports come first
        if words[0] in ("import", "table"):
            assert ("written: people.npz" if words[0] == "import" else "balanced accuracy") in said(command(tmp_path, *words))
        elif words[0] == "check":
            assert examine(str(tmp_path / words[1]), words[2:]) == 0, capsys.readouterr().out
        else:
            small = [text for text in TINY if "dataset=csbm" in words or not text.startswith("dataset.")]
            name = "people" if "dataset.name=people" in words else "c"
            assert f" on {name}" in said(command(tmp_path, *words, *small, "seeds=[0]"))


@pytest.mark.nightly
def test_the_guide_from_an_equation_to_code(tmp_path, capsys, monkeypatch):
    """The method keeps all promises, its limit is FedAvg to the digit, and the table names hooks that there are."""
    method, limit = blocks("equation_to_code.md")
    (tmp_path / "clipped_dyn.py").write_text(method, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for words in guide_lines("equation_to_code.md"):
        if words[0] == "check":
            for clip in ("10.0", "0.01"):
                assert examine(str(tmp_path / words[1]), [*words[2:], f"algorithm.clip={clip}"]) == 0, capsys.readouterr().out
        else:
            assert "clippeddyn on csbm" in said(command(tmp_path, *words, *TINY, "seeds=[0]"))
    exec(limit, {})  # noqa: S102 (our own page)
    assert "largest difference to FedAvg: 0.000000" in capsys.readouterr().out
    table = (ROOT / "docs/guides/equation_to_code.md").read_text(encoding="utf-8").partition("## Which hook do I need?")[2]
    named = {hook for cell in re.findall(r"^\| [^|]+ \| ([^|]+) \|", table, re.MULTILINE) for hook in re.findall(r"`([a-z_]+)`", cell)}
    every = (ROOT / "docs/writing_a_method.md").read_text(encoding="utf-8")
    there = set(re.findall(r"^\| `\w+` \| \**`(\w+)`\** \|", every, re.MULTILINE))
    assert len(named) > 12 and named - {"frozen"} <= there


@pytest.mark.nightly
def test_the_guide_to_a_company_s_graph(tmp_path, monkeypatch, capsys):
    converters, costs, fresh = blocks("company_graph.md")
    generator, count = np.random.default_rng(0), 600
    names = [f"n{number}" for number in range(count)]
    nodes = pd.DataFrame({"id": names, "owner": np.resize(["a", "b", "c"], count), "label": np.resize(["x", "y", ""], count)})
    nodes = nodes.assign(age=generator.random(count), height=generator.random(count))
    ends = generator.choice(names, (2, 1500))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FGL_BENCH_CACHE", str(tmp_path / "cache"))
    nodes.to_csv("nodes.csv", index=False)
    pd.DataFrame({"source": ends[0], "target": ends[1]}).to_csv("edges.csv", index=False)
    for line in map(shlex.split, LINE.findall((ROOT / "docs/guides/company_graph.md").read_text(encoding="utf-8"))):
        line = line[1:]
        small = ["rounds=2", "seeds=[0]", "threads=1"] if "=" in line[0] or line[0] == "-m" else []
        said(command(tmp_path, *line, *small))
    rows = pd.read_csv("later.csv", keep_default_na=False)
    assert rows["id"].tolist() == names and set(rows["predicted_name"]) <= {"x", "y"}
    capsys.readouterr()
    for code in (costs, fresh):
        exec(code, {})  # noqa: S102 (our own page)
    *prices, answer = capsys.readouterr().out.strip().splitlines()
    assert [line.split(":")[0] for line in prices[-3:]] == ["fedavg", "fedgta", "fed_pub"] and answer.startswith("[")
    assert sum(map(float, answer.strip("[]").split())) == pytest.approx(1, abs=0.02)
    made: dict = {}
    exec(converters, made)  # noqa: S102 (our own page)
    x, edges, y = torch.rand(5, 2), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 1, 0, 1, 1])
    made["from_pyg"](Data(x=x, edge_index=edges, y=y), "pyg.npz")
    # DGL is not installed: an object with the two members of its graphs that the page reads.
    made["from_dgl"](SimpleNamespace(edges=lambda: (edges[0], edges[1]), ndata={"feat": x, "label": y}), "dgl.npz")
    graph = networkx.Graph([(int(a), int(b)) for a, b in edges.T])
    graph.add_node(4)
    for node in graph:
        graph.nodes[node].update(first=float(x[node, 0]), second=float(x[node, 1]), kind=int(y[node]))
    made["from_networkx"](graph, "nx.npz", ["first", "second"], "kind")
    for name in ("pyg", "dgl", "nx"):
        with np.load(f"{name}.npz") as stored:
            assert stored["x"] == pytest.approx(x.numpy()) and stored["edge_index"].tolist() == edges.tolist()
            assert stored["y"].astype(int).tolist() == y.tolist()


def test_the_converter_of_musae_s_files(tmp_path, monkeypatch):
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/data.md").read_text(encoding="utf-8"), re.DOTALL)
    made: dict = {}
    exec(code, made)  # noqa: S102 (our own page)
    monkeypatch.chdir(tmp_path)
    Path("features.json").write_text('{"0": [2, 0, 2], "1": [1], "2": []}', encoding="utf-8")
    Path("edges.csv").write_text("from,to\n0,1\n1,0\n2,1\n", encoding="utf-8")
    Path("target.csv").write_text("id,mature,new_id\n7,True,1\n8,False,0\n9,True,2\n9,True,2\n", encoding="utf-8")
    out = "data/twitch_de/raw/twitch_de.npz"
    made["convert"]("features.json", "edges.csv", "target.csv", "mature", out, node="new_id", columns=5)
    graph = build(OmegaConf.merge(OmegaConf.load(ROOT / "conf/dataset/twitch.yaml"), {"countries": ["de"]})).load("data")
    assert graph.labels.tolist() == [0, 1, 1] and graph.edges.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.features.toarray().tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]


@pytest.mark.audit
def test_the_guide_from_a_number_to_its_run():
    text = (ROOT / "docs/guides/trust_a_number.md").read_text(encoding="utf-8")
    greps = re.findall(r"^    grep '([^'\n]*)' (\S+)\n\n```text\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    assert len(greps) == 2
    for pattern, file, shown_lines in greps:
        found = [line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if re.search(pattern, line)]
        for line, shown_line in zip(found, shown_lines.splitlines(), strict=True):
            start, _, end = shown_line.partition(",...")
            assert line.startswith(start) and line.endswith(end)
    [line] = [words for words in guide_lines("trust_a_number.md") if words[-1] == "threads=1"]
    digest = re.search(r"--hash (\w+)\n", text)[1]
    [cell] = [cell for cell in read_cells(ROOT / "results/cells/fedsa_gcl") if cell["config_hash"] == digest]
    assert f'cells.loc["{digest}"]' in text and f"fedprox/{digest}" in text
    assert shlex.split(cell["command"])[1:] == line[:-1]
    assert f"git checkout {cell['code']['commit']}\n" in text and all(
        f"{100 * cell['test'][model]['mean']:.2f} ±" in text for model in cell["test"]
    )


# ---- a version


def test_badges_are_true():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    badges = dict(re.findall(r"img\.shields\.io/badge/(\w+)-([^-]+)-\w+\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    versions = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
    assert badges == {"version": project["version"], "python": f"{versions[0]}_to_{versions[-1]}", "license": project["license"]}
    last = int(versions[-1].partition(".")[2])
    assert project["requires-python"] == f">={versions[0]},<3.{last + 1}"


@pytest.mark.nightly
def test_python_3_14_waits_for_hydra():
    """Python 3.14's argparse reads every help text when an argument is added, and one of Hydra's is no string.

    If this fails, the installed Hydra starts on Python 3.14: raise ``requires-python`` and say so in README.md.
    """
    from hydra._internal.utils import get_args_parser as of_hydra

    texts = [action.help for action in of_hydra()._actions if action.help is not None]
    lazy = [text for text in texts if not isinstance(text, str)]
    assert lazy, "Hydra no longer stands in the way of Python 3.14"
    for text in lazy:
        with pytest.raises(TypeError):
            "%" in text  # what argparse does  # noqa: B015


def test_all_files_name_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## \[(\d[^\]]*)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {project["version"], fgl_bench.__version__, citation["version"]} == {newest[1]}
    assert str(citation["date-released"]) == newest[2] and citation["license"] == project["license"]


def test_the_site_s_menu_has_every_page_and_no_other():
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
    menu = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]
    named = {word for word in re.findall(r"'([^']+\.(?:md|ipynb))'", str(menu))}
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")}
    assert there <= named
    made = {f"reference/{group}.md" for group in GROUPS if "/" not in group} | {"contributing.md", "changelog.md", "security.md"}
    made |= {f"results/{name}.md" for name in ("bench", "memory", "tables")}
    assert named - there == made | {f"reference/{name}.md" for name in ("index", "keys", "commands", "python", "hooks", "modules")}
