"""make archive: results/ in one file with sums, the same bytes for the same commit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile

import pytest

from scripts.archive import archive

FILES = {
    "results/b.csv": "1,2\n",
    "results/a/c.json": "{}",
    "CITATION.cff": "x",
    "LICENSE": "MIT",
    "pyproject.toml": '[project]\nversion = "7.1.0"\n',
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "results/runs").mkdir()
    (tmp_path / "results/runs/untracked.txt").write_text("not in git", encoding="utf-8")
    return tmp_path


def test_the_same_commit_gives_the_same_bytes_and_the_sums_hold(root, tmp_path):
    first = archive(root, tmp_path / "one")
    for name in FILES:
        os.utime(root / name, (1, 1))
        (root / name).chmod(0o600)
    assert archive(root, tmp_path / "two").read_bytes() == first.read_bytes()
    assert first.name == "fgl-bench-results-7.1.0.tar.gz"
    with tarfile.open(first) as tar:
        content = {name.partition("/")[2]: tar.extractfile(name).read() for name in tar.getnames()}
    sums = dict(reversed(line.split("  ")) for line in content.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(text).hexdigest() for name, text in content.items()}
    manifest = json.loads(content.pop("MANIFEST.json"))
    assert set(content) == set(FILES) - {"pyproject.toml"} and manifest["files"] == len(content) and manifest["version"] == "7.1.0"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    assert manifest["commit"] == head


def test_results_that_differ_from_the_commit_are_refused(root, tmp_path):
    (root / "results/b.csv").write_text("3\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="commit it first"):
        archive(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()
