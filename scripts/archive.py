"""Write results/ as one archive with a manifest and SHA-256 sums, for a repository that gives it a DOI.

    python scripts/archive.py [FOLDER]    # build/fgl-bench-results-VERSION.tar.gz; FOLDER is another place for it

Only files that git tracks are taken, so runs and figures stay out. The archive's bytes depend on names and contents alone: entries are
sorted; times, owners and modes are fixed. MANIFEST.json names version, commit and number of files. SHA256SUMS has a line per file
(``sha256sum --check SHA256SUMS``).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BESIDES = ("CITATION.cff", "LICENSE")


def tracked(root: Path) -> list[str]:
    """Return the files below results/ that git tracks, sorted."""
    done = subprocess.run(["git", "ls-files", "-z", "results"], cwd=root, check=True, capture_output=True, text=True)
    return sorted(filter(None, done.stdout.split("\0")))


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def archive(root: Path, folder: Path) -> Path:
    """Write the archive into a folder and return its path.

    Raises:
        SystemExit: a tracked file of results/ differs from its commit.
    """
    if git(root, "status", "--porcelain", "--untracked-files=no", "--", "results"):
        raise SystemExit("archive: results/ differs from the commit; commit it first, so that the manifest names the code")
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    files = {name: (root / name).read_bytes() for name in [*BESIDES, *tracked(root)]}
    manifest = {"name": "fgl-bench results", "version": version, "commit": git(root, "rev-parse", "HEAD"), "files": len(files)}
    files["MANIFEST.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    files["SHA256SUMS"] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()
    top = f"fgl-bench-results-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{top}.tar.gz"
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode = len(files[name]), 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    return path


def main() -> None:
    path = archive(ROOT, Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build")
    content = path.read_bytes()
    print(f"written: {path} ({len(content) / 1e6:.1f} MB, sha256 {hashlib.sha256(content).hexdigest()})")


if __name__ == "__main__":
    main()
