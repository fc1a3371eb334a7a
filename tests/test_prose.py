"""README.md and docs/ have short sentences and none of the words that scripts/prose.py lists."""

from __future__ import annotations

import pytest

from scripts.prose import PAGES, ROOT, SHORT, main, problems, sentences

LONG = "One " + "one " * 30


def test_no_page_has_a_long_sentence_or_an_avoided_word():
    short = {path for pattern in SHORT for path in ROOT.glob(pattern)}
    pages = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    assert len(short) > 15 and len(pages) > 40
    assert not [line for path in pages for line in problems(path, path in short)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LONG, ["31 words"]),
        (f"{LONG[:80]}. {LONG[:80]}.", []),
        (f"- {LONG[:80]}\n- {LONG[:80]}", []),
        (f"    {LONG}\n", []),
        (f"```text\n{LONG}\n```", []),
        (f"| {LONG} |", []),
        (f"<!-- output: x -->\n{LONG}\n<!-- /output -->", []),
        ("A link [with words](somewhere.md) and `some code of many words`.", []),
        ("Ten data sets.", ["dataset"]),
        ("It sends 3 MB a round.", ["per"]),
        ("We normalise it.", ["American"]),
        ("What became of the cells.", ["the results of", "a sentence"]),
    ],
)
def test_what_is_found_on_a_page(tmp_path, text, found):
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    lines = list(problems(path, short=True))
    assert len(lines) == len(found) and all(any(part in line for line in lines) for part in found), lines


def test_a_sentence_ends_at_its_stop():
    assert len(sentences("It runs (once). It ends. `table` shows it; see [the page](a.md). **Bold.** Yes.")) == 5


@pytest.mark.parametrize(("text", "failed"), [("One sentence.", False), (LONG, True)])
def test_the_exit_status_says_whether_anything_was_found(tmp_path, monkeypatch, text, failed):
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["prose.py", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert bool(ended.value.code) == failed and (ended.value.code is None) != failed
