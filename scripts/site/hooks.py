"""Hooks of mkdocs: menu of generated pages, links to files of the checkout, formulas, shell blocks, columns of numbers, search, version.

A link to a file that is not on the site leads to the generated page that shows it; without such a page it becomes plain text. Commands,
which are indented blocks in the checkout, become sessions with a prompt that is not copied.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from latex2mathml import converter

from fgl_bench.config.choices import choices

LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#]*)(?P<anchor>#[^)]*)?\)")
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md", "README.md": "index.md"}
BASES = re.compile(r"src/fgl_bench/(algorithms/(base|powers|records|topology)|.*/base)\.py")
GROUP = re.compile(r"conf(/(?P<name>\w+))?")
CHOICES = re.compile(r"src/fgl_bench/(?P<room>algorithms|models)/(?:.*/)?(?P<name>\w+?)_?\.py")
BLOCK = re.compile(r"(?:^    \S.*\n(?:    .*\n|\n(?=    \S))*)", re.MULTILINE)
MATH = re.compile(r"(?<![^\s(|])\$(?P<formula>[^\s$`](?:[^$`\n]*[^\s$`])?)\$(?=[\s).,;:|])")
TABLE = re.compile(r"^\|.*\|\n\|(?:-+\|)+\n(?:\|.*\|\n?)+", re.MULTILINE)
BAR = re.compile(r"(?<!\\)\|")
NUMBER = re.compile(r"[*~ ]*[-+−]?\d[^a-zA-Z]*(?:(?:points|trips|GB|MB|kB|ms|s|of|to)\b[^a-zA-Z]*)?")
COMMAND = re.compile(
    r"(?:fgl-bench(?!:)|make|python|pip|git|torchrun|tensorboard|wandb|mlflow|nvidia-cuda-mps-control|grep|export|env|\. )\b|\. "
)
BOOSTS = {
    "glossary": 4.0, "faq": 3.0, "tutorial": 3.0, "first_steps": 2.0, "guides/": 3.0,
    "reference/algorithm/fedavg.md": 6.0, "reference/algorithm/": 2.0, "reference/dataset/csbm": 0.5, "reference/dataset/": 1.5,
    "reference/python": 0.1, "reference/hooks": 0.01, "reference/modules": 0.001, "changelog": 0.01, "results/": 0.1,
}  # fmt: skip
"""How much more, or less, a page counts in a search, by the start of its path."""


def on_config(config: Any) -> Any:
    """Called by mkdocs once: the menu lists generated pages, and the header and every title show the version."""
    groups = ("algorithm", "model", "dataset")
    below = {f"reference/{group}.md": [f"reference/{group}/{name}.md" for name in choices(group)] for group in groups}
    below["results/tables.md"] = [f"results/{path.name}.md" for path in sorted(Path("results/tables").iterdir()) if path.is_dir()]
    for section in config.nav:
        for entry in next(iter(section.values())):
            name, page = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
            if page in below:
                entry[name] = [{f"All {name[0].lower()}{name[1:]}".replace("All the ", "All "): page}, *below[page]]
    version = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    config.site_name = f"{config.site_name} {version}"
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs with the text of every page."""
    path = page.file.src_uri
    page.meta.setdefault("search", {"boost": next((value for start, value in BOOSTS.items() if path.startswith(start)), 1.0)})
    here = posixpath.dirname(path)
    pages = {file.src_uri for file in files.documentation_pages()}

    def linked(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", here, match["target"]))
        target = path.removeprefix("docs/") if path.startswith("docs/") else shown_on(path)
        if target not in pages:
            return match[0] if path.startswith("docs/") else match["text"]  # mkdocs reports a page that is missing
        return f"[{match['text']}]({posixpath.relpath(target, here or '.')}{match['anchor'] or ''})"

    return BLOCK.sub(session, TABLE.sub(aligned, MATH.sub(lambda match: mathml(match["formula"]), LINK.sub(linked, markdown))))


def mathml(formula: str, display: str = "inline") -> str:
    """Return LaTeX as MathML, which browsers draw without a script; bars of norms keep their size."""
    return converter.convert(formula, display=display).replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')


def aligned(table: re.Match[str]) -> str:
    """A table whose columns of numbers are right-aligned, all but the first."""
    head, _, *body = table[0].rstrip("\n").split("\n")
    columns = zip(*([cell.strip() for cell in BAR.split(line)[1:-1]] for line in body), strict=False)
    numeric = [any(column) and all(NUMBER.fullmatch(cell) for cell in column if cell not in ("", "-")) for column in columns]
    rule = "".join("---:|" if isnumeric and index else "---|" for index, isnumeric in enumerate(numeric))
    return "\n".join([head, f"|{rule}", *body, ""])


def session(block: re.Match[str]) -> str:
    """A block of commands as a console session; another block as it is. Remarks stand behind three spaces."""
    lines = [line[4:] for line in block[0].rstrip("\n").split("\n")]
    if not COMMAND.match(lines[0]):
        return block[0]
    shown, goes_on = [], False
    for line in lines:
        prompt = "> " if goes_on else "$ "
        goes_on = line.endswith("\\")
        shown.append(prompt + re.sub(r" {3,}(?=[^\s#])", "   # ", line, count=1) if line.strip() else "")
    return "\n".join(["```console", *shown, "```", ""])


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs with the HTML of every page; searches skip source code and numbers, links of a notebook lead to pages.

    Besides that nobody looks for them: lunr's index merges words by keys in which digits are ambiguous, so that many numbers break others.
    """
    if not page.file.src_uri.endswith(".ipynb"):
        return re.sub(r'<(details class="mkdocstrings-source"|td style="text-align: right;")', r"<\1 data-search-exclude", html)
    return re.sub(r'(<a [^>]*href="[^":]+)\.md(["#])', r"\1.html\2", html)


def shown_on(path: str) -> str:
    """The page of the site that shows a file of the checkout."""
    if (stored := re.fullmatch(r"results/(?:bench|tables)/(\w+\.md)", path)) is not None:
        return f"results/{stored[1]}"
    if BASES.fullmatch(path):
        return "reference/hooks.md"
    if (choice := CHOICES.fullmatch(path)) is not None:
        return f"reference/{choice['room'].removesuffix('s')}/{choice['name']}.md"
    if (group := GROUP.fullmatch(path)) is not None:
        return f"reference/{group['name'] or 'index'}.md"
    room = re.fullmatch(r"src/fgl_bench/(\w+)(/.*)?", path.removesuffix(".py"))
    return ROOT_PAGES.get(path) or (f"reference/modules/{room[1]}.md" if room else "")
