"""Write the generated pages of the documentation: what conf/, docstrings and stored runs say. Run by mkdocs at every build of the site."""

from __future__ import annotations

import ast
import re
import sys
import tempfile
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

import mkdocs_gen_files
import yaml

import fgl_bench
from fgl_bench.cli.commands import about
from fgl_bench.cli.main import help_text
from fgl_bench.config.choices import GROUPS, choices, config_folder, path_of
from fgl_bench.config.settings import Settings
from fgl_bench.runner.validation import CHOICES
from fgl_bench.scenarios.hooks import supported

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from choice_keys import Key, cell, class_of, identifier, key_table, keys_of, kind_of, listed, values_of, without_values  # noqa: E402
from choice_pages import dataset_page, method_page, title  # noqa: E402
from docstrings import ROLE, linked  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fgl_bench"
RESULTS = ROOT / "results"
PYTHON = ("run", "Result", "load_results", "table", "ResultTable", "plot", "UserError")
BASES = {  # what a class of a reader's own derives from, and what its hooks are given
    "Methods": (
        "algorithms.base", "algorithms.powers",
        "algorithms.records", "algorithms.topology",
    ),
    "Backbones, datasets, splits, optimizers, scenarios": (
        "models.base", "data.datasets.base", "data.splits.base", "optimizers.base", "scenarios.base",
    ),
}  # fmt: skip
TITLES = {
    "algorithm": ("Algorithms", "Federated methods. `algorithm=` chooses one; it also chooses the scenario that the method is made for."),
    "model": ("Models", "Backbones: the network that every client trains."),
    "dataset": ("Datasets", "Raw files are described in [Data](../data.md)."),
    "split": ("Splits", "How the nodes of a graph are divided among clients. Masks are described in [Data](../data.md#splits-and-masks)."),
    "task": ("Tasks", "What has a label: a node, a graph, or a pair of nodes. See [Tasks](../tasks.md)."),
    "optimizer": ("Optimizers", "The optimizer of the clients' local steps. `lr` and `weight_decay` are top-level [keys](keys.md)."),
    "lr_schedule": ("Learning-rate schedules", "How `lr` changes over the rounds."),
    "scenario": ("Scenarios", "Who trains when, and which uploads arrive."),
    "scenario/sparsity": ("Sparsity", "What is missing from the clients' data while they train."),
    "scenario/noise": ("Noise", "What is wrong in the clients' data while they train. See [Noise, attacks and privacy](../robustness.md)."),
    "scenario/attack": ("Attacks", "What malicious clients train on and upload. See [Noise, attacks and privacy](../robustness.md)."),
    "aggregator": ("Aggregators", "How a server makes one model of all uploads. See [Noise, attacks and privacy](../robustness.md)."),
    "privacy": ("Privacy", "What the server's models reveal of a client. See [Noise, attacks and privacy](../robustness.md)."),
    "tracker": ("Trackers", "Where curves and scores are logged besides the run directory."),
}
MODELS = {
    "bernnet": "BernNet", "chebnet": "ChebNet", "disengcn": "DisenGCN", "gamlp": "GAMLP", "gat": "GAT", "gbp": "GBP", "gcn": "GCN",
    "gcn_linear": "GCN with a linear head", "gcn_residual": "GCN with residual connections",
    "gin": "GIN", "gin_plain": "GIN without normalization", "graphsage": "GraphSAGE", "mlp": "MLP", "optbasis": "OptBasisGNN",
    "s2gc": "S2GC", "sgc": "SGC", "sign": "SIGN", "unifilter": "UniFilter",
}  # fmt: skip
documented: set[str] = set()  # classes and functions that a page has shown


def main() -> None:
    for group, lines_of in (("algorithm", method_page), ("model", model_page), ("dataset", dataset_page)):
        write(f"reference/{group}.md", datasets() if group == "dataset" else overview(group))
        for choice in choices(group):
            cls = class_of(path_of(group, choice, ()))
            write(f"reference/{group}/{choice}.md", [*lines_of(choice), *class_section(cls, described=group == "algorithm")])
    for group in ("task", "split", "optimizer", "lr_schedule", "aggregator", "privacy", "tracker"):
        write(f"reference/{group}.md", [*headed(group), *sections(group)])
    inner = [line for group in GROUPS if group.startswith("scenario/") for line in (*headed(group, 2), *sections(group, 3))]
    write("reference/scenario.md", [*headed("scenario"), *sections("scenario"), *inner])
    write("reference/keys.md", keys_page())
    write("reference/experiment.md", presets())
    write("reference/commands.md", ["# Commands", "", "`fgl-bench --help` prints:", "", "```text", help_text(), "```"])
    write("reference/python.md", python_page())
    write("reference/hooks.md", hooks_page())
    rooms()
    write("reference/index.md", REFERENCE.splitlines())
    for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        write(f"{name.lower()}.md", re.sub(r"\]\(docs/", "](", text).splitlines())
    results()


def write(path: str, lines: Iterable[str]) -> None:
    with mkdocs_gen_files.open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


# ---- Choices and their keys


def headed(group: str, level: int = 1) -> list[str]:
    title, text = TITLES[group]
    return ["#" * level + f" {title}", "", text, ""]


def overview(group: str) -> list[str]:
    """A line for every choice, with a link to its page."""
    lines = [*headed(group), "| name | choice | scenario | description |" if group == "algorithm" else "| name | choice | description |"]
    lines.append("|---" * lines[-1].count(" | ") + "|---|")
    for choice in choices(group):
        path = path_of(group, choice, ())
        runs_in = f" {', '.join(supported(class_of(path)))} |" if group == "algorithm" else ""
        name = title(group, choice) if group == "algorithm" else MODELS[choice]
        lines.append(f"| [{name}]({group}/{choice}.md) | `{choice}` |{runs_in} {cell(about(path))} |")
    return lines


def model_page(choice: str) -> list[str]:
    path = path_of("model", choice, ())
    lines = [f"# {MODELS[choice]}", "", about(path), "", "```console", f"$ fgl-bench model={choice}", "```", ""]
    return [*lines, "## Keys", "", *key_table("model.", keys_of("model", path))]


def class_section(cls: type, described: bool) -> list[str]:
    """The class of a choice; without its docstring where the page has described it already."""
    lines = shown(identifier(cls))
    return (
        [*lines[:-1], "      show_docstring_description: false", "      show_docstring_attributes: false", ""]
        if described and lines[0][0] == ":"
        else lines
    )


def sections(group: str, level: int = 2) -> Iterator[str]:
    """Every choice of a group below a heading of its own."""
    for choice in choices(group):
        path = path_of(group, choice, ())
        yield from ("#" * level + f" {choice}", "", about(path), "")
        yield from key_table(f"{group.replace('/', '.')}.", keys_of(group, path))
        yield from shown(identifier(class_of(path)), level + 1)


def datasets() -> list[str]:
    """A line for every dataset."""
    lines = [*headed("dataset"), "| name | choice | description | metric | train, val, test |", "|---|---|---|---|---|"]
    for choice in choices("dataset"):
        path = path_of("dataset", choice, ())
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        shares = ", ".join(map(str, values["ratios"] or []))
        lines.append(
            f"| [{title('dataset', choice)}](dataset/{choice}.md) | `{choice}` | {cell(about(path))} | `{values['metric']}` | {shares} |"
        )
    return lines


def keys_page() -> list[str]:
    """The single keys of conf/config.yaml."""
    path = config_folder() / "config.yaml"
    hints = typing.get_type_hints(Settings)
    with tempfile.TemporaryDirectory() as folder:
        # Without its list of groups, whose entries are no files of a group.
        copy, text = Path(folder, path.name), path.read_text(encoding="utf-8")
        copy.write_text(re.sub(r"^defaults:\n(?:  .*\n)*", "", text, flags=re.MULTILINE), encoding="utf-8")
        values = {name: both for name, both in values_of("", copy).items() if name in hints}
    assert values.keys() == hints.keys(), "a key without a line in conf/config.yaml"
    kinds = {**{name: kind_of(hint) for name, hint in hints.items()}, **{name: listed(allowed) for name, allowed in CHOICES.items()}}
    keys = [Key(name, default, kinds[name], without_values(comment, kinds[name])) for name, (default, comment) in values.items()]
    return [*KEYS.splitlines(), *key_table("", keys)]


def presets() -> list[str]:
    return [*PRESETS.splitlines(), *(f"| `{name}` | {cell(about(path_of('experiment', name, ())))} |" for name in choices("experiment"))]


# ---- Docstrings


def shown(name: str, level: int = 2) -> list[str]:
    """The docstring of a class, function or module; on one page only."""
    if name in documented:
        return [f"Class: [`{name.rpartition('.')[2]}`][{name}].", ""]
    documented.add(name)
    return [f"::: {name}", "    options:", f"      heading_level: {level}", ""]


def python_page() -> list[str]:
    lines = ["# Python", "", "`import fgl_bench` gives these names, and the bases of [Hooks and records](hooks.md).", ""]
    for name in PYTHON:
        lines += shown(f"fgl_bench.{fgl_bench.PUBLIC[name]}.{name}")
    return lines


def hooks_page() -> list[str]:
    lines = HOOKS.splitlines()
    for heading, modules in BASES.items():
        lines += ["", f"## {heading}", ""]
        for module in modules:
            for name in public(module):
                lines += shown(f"fgl_bench.{module}.{name}", 3)
    return lines


def rooms() -> None:
    """A page for every package of src, with all public classes and functions that no other page has shown."""
    lines = MODULES.splitlines()
    for room in sorted(path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()):
        if room.stem in ("__init__", "__main__"):
            continue
        text = [f"# {room.stem}", ""]
        for path in sorted(room.rglob("*.py")) if room.is_dir() else [room]:
            module = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
            names = [name for name in public(module) if f"fgl_bench.{module}.{name}" not in documented]
            if names and not any(part.startswith("_") for part in module.split(".")):
                about_it = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
                text += [f"## {module}", "", *ROLE.sub(linked, about_it).splitlines(), ""]
                for name in names:
                    text += shown(f"fgl_bench.{module}.{name}", 3)
        write(f"reference/modules/{room.stem}.md", text)
        lines.append(f"- [{room.stem}](modules/{room.stem}.md)")
    write("reference/modules.md", lines)


def public(module: str) -> list[str]:
    """The public classes and functions with a docstring that a module defines."""
    stem = SOURCE.joinpath(*module.split("."))
    path = stem.with_suffix(".py") if stem.with_suffix(".py").is_file() else stem / "__init__.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_") and ast.get_docstring(node)]


# ---- Results


def results() -> None:
    """Write the pages of stored measurements and of the papers' tables."""
    for name in ("bench", "memory"):
        write(f"results/{name}.md", (RESULTS / "bench" / f"{name}.md").read_text(encoding="utf-8").splitlines())
    with mkdocs_gen_files.open("results/growth.png", "wb") as file:
        file.write((RESULTS / "bench" / "growth.png").read_bytes())
    lines = ["# The papers' tables", "", "Our results next to the printed ones:", ""]
    for folder in sorted(path for path in (RESULTS / "tables").iterdir() if path.is_dir()):
        tables = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("table*.md")) if not path.stem.endswith("_statistics")]
        title = tables[0].removeprefix("# ").partition(",")[0]
        lines.append(f"- [{title}](../results/{folder.name}.md)")
        write(f"results/{folder.name}.md", [f"# {title}", "", *(re.sub("^# ", "## ", table) for table in tables)])
    write("results/tables.md", lines)


KEYS = """\
# Keys

Top-level keys, `KEY=VALUE` on the command line. Keys of a choice are on the choice's page.

"""
PRESETS = """\
# Presets

The settings of the papers' tables and figures: `fgl-bench experiment=fedsa_gcl/table3 dataset=cora`. What a paper sets for
one dataset is added automatically. `fgl-bench show experiment/fedsa_gcl/table3` prints a preset.

| preset | what it is |
|---|---|
"""
HOOKS = """\
# Hooks and records

What classes of your own derive from, and what their hooks are given. [Your own method](../guides/own_method.md) shows how they are used.
S is the number of seeds, C of clients, B = S · C of replicas, P of parameters, n of padded nodes, Y of classes.
"""
MODULES = """\
# Modules

Everything public that the other pages do not show, by package. [Architecture](../architecture.md) says what each is for.

"""
REFERENCE = """\
# Reference

Everything here is made from `conf/` and from docstrings when the site is built.

- [Keys](keys.md) that every run has.
- Choices and their keys: [algorithms](algorithm.md), [models](model.md), [datasets](dataset.md), [splits](split.md),
  [optimizers](optimizer.md), [tasks](task.md), [scenarios](scenario.md) and sparsity, [trackers](tracker.md), [presets](experiment.md).
- [Commands](commands.md): `table`, `plot`, `place`, `check`, `tune` and others.
- [Python](python.md): `fgl_bench.run`, `load_results`, `table`, `plot`.
- [Hooks and records](hooks.md): what a class of your own overrides and is given.
- [Modules](modules.md): the other public classes and functions.
"""

main()
