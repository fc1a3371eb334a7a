"""Figures find the runs that they are drawn from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from omegaconf import OmegaConf

from fgl_bench.reporting.drawings.base import Sources
from fgl_bench.reporting.papers.dfed_sst import PAPER
from fgl_bench.reporting.plan import columns
from fgl_bench.reporting.store import SCHEMA_VERSION, config_hash


def test_a_run_is_found_by_its_hash_and_by_a_configuration_that_lacks_newer_keys(tmp_path: Path) -> None:
    table = dataclasses.replace(PAPER.tables[0], columns=columns(("cora",)), rows=PAPER.tables[0].rows[:1])
    sources = Sources(dataclasses.replace(PAPER, tables=(table,)), ("cora",), tmp_path, None)
    [cell] = sources.planned([table.key])
    place = (table.key, table.rows[0].key, "cora")
    assert sources.runs(table.key) == {}
    for config, counts in (
        ({**cell.config, "lr": 0.5}, False),
        ({key: value for key, value in cell.config.items() if key != "batch_nodes"}, True),
        (dict(cell.config), True),
    ):
        folder = (tmp_path / "runs" / cell.folder).with_name(config_hash(config))
        folder.mkdir(parents=True)
        summary = {"schema_version": SCHEMA_VERSION, "config_hash": folder.name, "config": config, "test": {}}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        (folder / "config.yaml").write_text(OmegaConf.to_yaml(config), encoding="utf-8")
        (folder / "history.csv").write_text("seed\n", encoding="utf-8")
        assert sources.runs(table.key) == ({place: folder} if counts else {})
