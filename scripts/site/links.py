"""Links to files of the checkout that are not on the site: to a generated page where one shows the file, else plain text.

A hook of mkdocs.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#]*)(?P<anchor>#[^)]*)?\)")
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md", "README.md": "index.md"}
BASES = re.compile(r"src/fgl_bench/(algorithms/(base|powers|records|topology)|.*/base)\.py")
GROUP = re.compile(r"conf(/(?P<name>\w+))?")
CHOICES = re.compile(r"src/fgl_bench/(?P<room>algorithms|models)/(?:.*/)?(?P<name>\w+?)_?\.py")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs with the text of every page."""
    here = posixpath.dirname(page.file.src_uri)
    pages = {file.src_uri for file in files.documentation_pages()}

    def linked(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", here, match["target"]))
        target = path.removeprefix("docs/") if path.startswith("docs/") else shown_on(path)
        if target not in pages:
            return match[0] if path.startswith("docs/") else match["text"]  # mkdocs reports a page that is missing
        return f"[{match['text']}]({posixpath.relpath(target, here or '.')}{match['anchor'] or ''})"

    return LINK.sub(linked, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs with the HTML of every page; links of a notebook lead to the Markdown files of the checkout."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
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
