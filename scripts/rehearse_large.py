"""Run `fgl-bench` with the given arguments and report the memory it took and how long its parts lasted (Linux).

    python scripts/rehearse_large.py dataset=csbm_5m num_clients=500 split=louvain split.backend=igraph model=sgc algorithm=fedavg

Peak of resident memory: all pages, and those that are not of mapped files (a mapped page can be dropped at any time).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

INTERVAL = 0.1
FIELDS = ("VmRSS", "RssAnon")


def resident(pid: int) -> dict[str, int]:
    """Bytes of resident memory now; empty when the process has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name: 1024 * int(match[1]) for name in FIELDS if (match := re.search(rf"{name}:\s+(\d+)", text))}


def main() -> int:
    command = [str(Path(sys.executable).with_name("fgl-bench")), *sys.argv[1:]]
    begin, peak = time.perf_counter(), dict.fromkeys(FIELDS, 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            for name, value in resident(process.pid).items():
                peak[name] = max(peak[name], value)
            time.sleep(INTERVAL)
        output = process.stdout.read()
    print(output, end="")
    written = re.search(r"^written: (.+)$", output, re.MULTILINE)
    report = {"arguments": sys.argv[1:], "wall_seconds": round(time.perf_counter() - begin, 1)}
    report["peak_gb"] = {"resident": round(peak["VmRSS"] / 1e9, 2), "not_of_files": round(peak["RssAnon"] / 1e9, 2)}
    if written:
        report["seconds"] = json.loads((Path(written[1]) / "summary.json").read_text(encoding="utf-8"))["seconds"]
    print(json.dumps(report, indent=2))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
