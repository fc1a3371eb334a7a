"""Convert runs of version 1.0 to this version: ``python -m fgl_bench.results.migrate results/runs``.

Version 1.0 omitted newer keys from a run's identity if they had their default value. Now every key is part of the identity. The keys come
from the run's ``config.yaml`` and the folder is renamed to the new hash; no number changes.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import yaml

from fgl_bench.errors import UserError
from fgl_bench.results.frame import complete_runs, folder_of
from fgl_bench.results.store import SCHEMA_VERSION, config_hash, identity
from fgl_bench.results.sweeps import NAME
from fgl_bench.utils.files import scratch, write_whole


def migrate(folder: str | Path) -> dict[str, str]:
    """Migrate the runs below a folder and the sweeps that contain them; returns new hashes by old hash.

    Raises:
        UserError: the folder does not exist.
    """
    where, renamed = folder_of(folder), {}
    for run in complete_runs(where):
        old, summary = run.folder, run.summary
        if summary["schema_version"] == SCHEMA_VERSION:
            continue
        full, known = yaml.safe_load((old / "config.yaml").read_text(encoding="utf-8")), summary["config"]
        what = identity(full, known["rounds"], known["trips"], known.get("data"))
        what = {key: value for key, value in what.items() if key != "code"} | ({"code": known["code"]} if "code" in known else {})
        digest = config_hash(what)
        changed = {**summary, "schema_version": SCHEMA_VERSION, "config": what, "config_hash": digest}
        with scratch(f".{digest}-", old.parent) as draft:
            shutil.copytree(old, draft / digest)
            write_whole(draft / digest / "summary.json", json.dumps(changed, indent=2, allow_nan=False) + "\n")
            (draft / digest).rename(old.with_name(digest))
        shutil.rmtree(old)
        renamed[old.name] = digest
    for path in where.rglob(NAME):
        text = path.read_text(encoding="utf-8")
        for before, digest in renamed.items():
            text = text.replace(f"/{before}", f"/{digest}")
        write_whole(path, text)
    return renamed


if __name__ == "__main__":
    try:
        for before, digest in migrate(sys.argv[1] if len(sys.argv) > 1 else "results/runs").items():
            print(f"{before} is {digest} now")
    except UserError as error:
        sys.exit(f"migrate: {error}")
