"""Compute one cell in a separate process: ``python -m fgl_bench.leaderboard PROTOCOL ENTRY DATASET SPLIT FOLDER UNTIL [KEY=VALUE...]``."""

from __future__ import annotations

import sys
from pathlib import Path

from fgl_bench.errors import UserError
from fgl_bench.leaderboard.cell import BoardCell
from fgl_bench.leaderboard.protocol import BoardColumn, read_protocol
from fgl_bench.utils.processes import Stopped, stoppable

if __name__ == "__main__":
    path, name, dataset, split, folder, until, *where = sys.argv[1:]
    try:
        protocol = read_protocol(Path(path))
        entry = next(entry for entry in protocol.entries if entry.name == name)
        with stoppable():
            BoardCell(protocol, entry, BoardColumn(dataset, split), Path(folder), where, float(until)).make()
    except Stopped as stopped:
        sys.exit(stopped.status)
    except UserError as error:
        sys.exit(f"{name} in {dataset}-{split}: {error}")
