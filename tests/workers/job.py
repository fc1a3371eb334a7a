"""A worker: makes the runs that a file lists, one after the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import fgl_bench

torch.set_num_threads(1)
for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    fgl_bench.run(**job)
