"""Description of methods for the report page: docstring, keys and links."""

from __future__ import annotations

import ast
import csv
import inspect
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.config.choices import choices, config_folder, key_lines
from fgl_bench.config.values import shown
from fgl_bench.utils.sources import origin_of

GROUP = "algorithm"
OTHER_CODE = {"openfgl": "OpenFGL", "pfllib": "PFLlib", "fed_pub": "FED-PUB's code", "gcfl": "GCFL's code"}  # files of results/cross_check
UNCHECKED = "Not checked against its authors' code: no run of such code is stored."
CITATION = re.compile(r"\(([A-Z][^()]*(?:\([^()]*\)[^()]*)?\d{4}[^()]*)\)")  # (Li et al., PVLDB 17(1), 2023)
PART = re.compile(r"[,;] (?:algorithm|eq\.|section|ablation|its |the |FedAvg)")  # of a paper, after its year
SECTIONS = ("Attributes:", "Args:", "Raises:", "Returns:")


@cache
def all_methods() -> dict[str, dict]:
    """Describe every choice of the group ``algorithm``."""
    return {name: of_choice(name) for name in choices(GROUP)}


def of_choice(name: str) -> dict:
    """Describe a method of the package."""
    text = (config_folder() / GROUP / f"{name}.yaml").read_text(encoding="utf-8")
    target = re.search(r"^_target_: *([\w.]+)", text, flags=re.MULTILINE)
    first = re.match(r"# *(.+)", text)
    method = described(name, first[1] if first else "", target[1] if target else "", [list(line) for line in key_lines(text)])
    return {**method, "checks": list(cross_checks().get(name, ())), "checked": verification(name)}


def of_run(name: str, config: Mapping[str, Any]) -> dict:
    """Describe a method from outside the package, from the configuration of a run."""
    own = config.get(GROUP, {})
    keys = [[key, shown(value), ""] for key, value in own.items() if key != "_target_" and not isinstance(value, Mapping)]
    return described(name, "", str(own.get("_target_", "")), keys)


@cache
def cross_checks() -> dict[str, dict[str, list[str]]]:
    """Return, by method and other code, the stored differences of test scores (docs/cross_check.md)."""
    by_method: dict[str, dict[str, list[str]]] = {}
    for path in sorted((config_folder().parent / "results" / "cross_check").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                method = next(iter(re.findall(r"\balgorithm=(\w+)", row["command"])), "fedavg")  # the default
                if not row["method"].startswith(method):
                    continue  # a backbone's check
                code = "its authors' code" if method.startswith(path.stem) else OTHER_CODE.get(path.stem, f"the code of {path.stem}")
                variant = f"{row['method']} on " * (row["method"] != method)
                outside = "*" * (abs(float(row["difference"])) > float(row["interval"]))
                difference = f"{float(row['difference']) + 0.0:+.2f} ± {row['interval']}{outside}"
                by_method.setdefault(method, {}).setdefault(code, []).append(f"{variant}{row['dataset']} {difference}")
    return by_method


@cache
def addresses() -> dict[str, str]:
    """Return the address of each method's paper, from docs/references.bib and the entries that scripts/site/methods.yaml names."""
    root, urls = config_folder().parent, {}
    for entry in (root / "docs" / "references.bib").read_text(encoding="utf-8").split("\n@")[1:]:
        if url := re.search(r"^  url = \{(.+)\},$", entry, re.MULTILINE):
            urls[entry.partition("{")[2].partition(",")[0]] = url[1]
    methods = yaml.safe_load((root / "scripts" / "site" / "methods.yaml").read_text(encoding="utf-8"))
    return {name: urls[facts["paper"]] for name, facts in methods.items() if facts.get("paper") in urls}


def verification(name: str) -> str:
    """Return a sentence on the stored comparisons of a method with other code."""
    parts = [f"{code} ({', '.join(differences)})" for code, differences in cross_checks().get(name, {}).items()]
    if not parts:
        return UNCHECKED
    sentence = f"Checked against {' and '.join(parts)}: test scores, ours minus theirs, in points with 95 % intervals over the seeds"
    return f"{sentence}{'; * excludes 0' * ('*' in sentence)}."


def described(name: str, about: str, target: str, keys: list[list[str]]) -> dict:
    """Return plain data; ``lead`` is the first paragraph of the class's docstring, ``text`` the others."""
    lead, *text = paragraphs(docstring(target)) or [about]
    cited = CITATION.search(lead)
    paper = PART.split(cited[1])[0] if cited else ""
    url = addresses().get(name, "")
    return {"name": name, "about": about or lead, "lead": lead, "text": text, "target": target, "keys": keys, "paper": paper, "url": url}


def docstring(target: str) -> str:
    """Return the docstring of a class by its full name, read from source without importing it; empty if missing."""
    module, _, name = target.rpartition(".")
    if not module.startswith("fgl_bench.") and not module.isidentifier():
        return ""  # finding it would import its package
    origin = Path(origin_of(module) or "")
    files = sorted(origin.parent.glob("*.py")) if origin.name == "__init__.py" else [origin]
    try:
        nodes = [node for path in files if path.suffix == ".py" for node in ast.parse(path.read_text(encoding="utf-8")).body]
    except (OSError, SyntaxError, ValueError):
        return ""
    return next((ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.ClassDef) and node.name == name), "")


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs before ``Attributes:``, each as one line."""
    result = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if part.strip() in SECTIONS or part.startswith(SECTIONS):
            break
        result.append(re.sub(r":(?:class|func|meth|data|attr):`[~.]?([^`]+)`", r"``\1``", " ".join(part.split())))
    return [part for part in result if part]
