"""``COMMAND --help`` names every key with its meaning; ``show`` prints runs and stored cells."""

from __future__ import annotations

import re

import pytest
import yaml

from fgl_bench.cli.commands import CELLS, COMMANDS, show
from fgl_bench.cli.main import usage
from fgl_bench.errors import UserError
from fgl_bench.results.store import config_hash
from tests.results.stored_runs import store
from tests.warm import command


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_a_command_is_at_most_80_columns_and_says_what_its_keys_mean(name):
    text = usage(name)
    assert max(map(len, text.splitlines())) <= 80 and re.search(r"^  \S+ {2,}\S", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "line", [["table", "."], ["plot", "bars", "."], ["report", "."], ["leaderboard", "."], ["import", "a.csv", "b.csv"]]
)
def test_every_key_that_a_command_takes_is_in_its_help(tmp_path, line):
    done = command(tmp_path, *line, "nonsense=1")
    known = re.search(r"allowed: ([\w, ]+);", done.stderr)
    assert known, done.stderr
    keys = {*known[1].split(", ")} - {"protocol"}  # of the tests
    assert keys <= set(re.findall(r"^  (\w+) {2,}", usage(line[0]), flags=re.MULTILINE))


def test_a_run_shows_its_command_and_configuration(tmp_path, capsys):
    folder = store(tmp_path, "fedavg", command="fgl-bench algorithm=fedavg 'seeds=[0,1]'")
    show([str(folder)])
    _, line, *config = capsys.readouterr().out.splitlines()
    assert line == "# fgl-bench algorithm=fedavg 'seeds=[0,1]'"
    assert config_hash(yaml.safe_load("\n".join(config))) == folder.name


def test_a_cell_is_shown_by_its_hash_or_its_place_in_a_paper(capsys):
    show(["fedsa_gcl/3/fedprox/cora"])
    by_place = capsys.readouterr().out
    assert "\n# fgl-bench experiment=fedsa_gcl/table3 dataset=cora algorithm=fedprox\n# received model " in by_place
    [verdict] = re.findall(r"\n# printed in fedsa_gcl table 3, cora: 56.7 ± 4.4; trained model of ours: (.*)\n", by_place)
    assert verdict == "difference +19.7, 90 % interval 16.0 to 23.3: different"
    show([re.search(r"config_hash (\w+)", by_place)[1]])
    assert capsys.readouterr().out == by_place
    show(["fedsa_gcl/3/fedprox"])
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) > 3 and all(re.match(r"[0-9a-f]{12}  fgl-bench experiment=fedsa_gcl/table3 dataset=", text) for text in listed)


def test_a_wrong_row_of_a_paper_s_table_is_met_with_the_nearest_cells():
    with pytest.raises(UserError, match=r"^fedsa_gcl/3/fedprx/cora: no such cell; did you mean 3/fedprox/cora"):
        show(["fedsa_gcl/3/fedprx/cora"])
    with pytest.raises(UserError, match=r"^fedsa_gcl/99: no such cell"):
        show(["fedsa_gcl/99"])


@pytest.mark.parametrize("name", ["000000000000", "nowhere/at/all"])
def test_what_is_neither_a_choice_nor_a_run_is_one_line(name):
    assert CELLS.is_dir()
    with pytest.raises(UserError, match=f"{name}: (there is )?no such choice"):
        show([name])
