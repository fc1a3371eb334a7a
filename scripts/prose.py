"""Find long sentences and words that the documentation avoids.

    python scripts/prose.py [FILE...]    # by default every page; a long sentence counts on the pages of SHORT only

A sentence ends at a full stop, a question mark, a colon before a capital letter, or with its paragraph or list item. Code blocks, tables
and generated blocks are left out. A link counts by its text, and code in backticks is one word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS = 30
SHORT = ("README.md", "docs/index.md", "docs/tutorial.md", "docs/findings.md", "docs/guides/*.md")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
UNITS = "trips?|bytes|MB|GB|ms|seconds|rounds|messages|models|labels|line|row|one|file"
BRITISH = "neighbour|behaviour|colour|labell|modell|centre|optimis|normalis|initialis|personalis|decentralis|synchronis|licence"
AVOIDED = {
    r"\bdata sets?\b": "dataset",
    r"\bbeside\b": "next to",
    r"\banew\b": "again",
    r"\bat hand\b": "available",
    r"\bbut for\b": "except for",
    r"\bthe prints?\b": "the published number",
    r"\btold apart\b": "distinguished",
    r"\bwhat became of\b": "the results of",
    r"\bpretended?\b": "simulated",
    r"\bmended\b": "fixed",
    r"\bhang on it\b": "depend on it",
    r"\bdearest\b": "most expensive",
    r"\bthe other way round\b": "conversely",
    r"(?:^|[.:] )(?:What|Whether|Of) [^.?]*\.": "a sentence with a subject",
    rf"\b(?:{UNITS}) a (?:round|seed|node|client|file|method|run)\b": "per",
    rf"\b(?:{BRITISH})\w*": "American spelling",
}
"""Words to avoid, by pattern, and what to write instead."""


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line's number and the text of every paragraph and list item, without code, tables and generated blocks."""
    text = re.sub(r"<!-- (\w+)[ :].*?<!-- /\1 -->", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    start, kept = 0, ""
    for number, line in enumerate([*text.split("\n"), ""], 1):
        plain = line.strip()
        item = re.match(r"\s*(?:[-*+]|\d+\.|:) +|#+ ", line)
        if not plain or plain.startswith(("|", "<!--", "    ")) or (line.startswith("    ") and not kept) or item:
            if kept:
                yield start, kept
            start, kept = number, plain if item else ""
        else:
            start, kept = (start, f"{kept} {plain}") if kept else (number, plain)
    if kept:
        yield start, kept


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph; code is one word, a link its text."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    text = re.sub(r"``?[^`]+``?|\*\*|<[^>]+>", lambda match: "CODE" if match[0].startswith("`") else "", text)
    return [part for part in re.split(r"(?<=[.?!:])\)?\s+(?=[A-Z*(\"]|CODE|$)", text) if part.strip()]


def problems(path: Path, short: bool) -> Iterator[str]:
    """Yield one line per long sentence and avoided word of a page."""
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for number, paragraph in paragraphs(path.read_text(encoding="utf-8")):
        for sentence in sentences(paragraph):
            words = re.findall(r"[\w'±%/=.-]*\w[\w'±%/=.-]*", sentence)
            if short and len(words) > MOST_WORDS:
                yield f"{name}:{number}: {len(words)} words: {' '.join(words[:8])} ..."
            for pattern, better in AVOIDED.items():
                if found := re.search(pattern, sentence, re.IGNORECASE if not pattern.startswith("(?:^") else 0):
                    yield f'{name}:{number}: "{found[0][:40]}": write {better}'


def main() -> None:
    short = {path for pattern in SHORT for path in ROOT.glob(pattern)}
    pages = [Path(name).resolve() for name in sys.argv[1:]] or sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    found = [line for path in pages for line in problems(path, path in short or bool(sys.argv[1:]))]
    sys.exit("\n".join(found) or None)  # an empty text would be a failure


if __name__ == "__main__":
    main()
