"""``ls``, ``show``, ``cp``, ``check`` and ``tune``; addresses with passwords; the surroundings of a run."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.hostile.bed import Answer, Case, Pool, T, accepted, as_expected, refused

COMMANDS = {
    "ls nonsense": "no such group",
    "show": "show what",
    "show nonsense": "no such choice",
    "cp": "cp takes",
    "cp algorithm/fedavg": "cp takes",
    "cp algorithm/fedavg /proc/x": "cannot be written",
    "cp algorithm/fedavg there.yaml": "there already",
    "check": "check what",
    "check nowhere.py": "nowhere.py",
    "predict": "predict what",
    "predict nowhere": "nowhere: there is no such folder",
    "predict . seed=1": "needs a GRAPH",
    "report nowhere": "nowhere: there is no such folder",
    "report ~no_such_user": "no_such_user",
    "report . out=page": "must end in .html",
    "report . papers=../x": "papers=../x",
    "report a b": "give one folder",
    "leaderboard nowhere": "nowhere: there is no such folder",
    "leaderboard . score=test": "score=test",
    "leaderboard . protocol=file": "no protocol",
    "submit": "submit --check FOLDER",
    "submit --check .": "has no entry.yaml",
    "submit --check . tolerance=nan": "tolerance",
    "place nowhere.py leaderboard": "nowhere.py: there is no such file",
    "place nowhere.py leaderboard lr=1": "the protocol is the same for all",
    "tune nonsense": "no such space",
    "tune broken.yaml": "broken.yaml",
    "tune list.yaml": "list.yaml",
    "tune range.yaml": "low=2 and high=1",
    "tune words.yaml": "lr",
    "tune fedgta trials=nan": "trials",
    "tune fedgta seconds=nan": "seconds",
    "tune fedgta model_of=nonsense": "model_of",
    "tune fedgta foo=1": "foo",
}
FILES = {
    "file": "a: [",
    "there.yaml": "",
    "broken.yaml": "lr: {low: [",
    "list.yaml": "- lr\n",
    "range.yaml": "lr: {low: 2, high: 1, kind: real}\n",
    "words.yaml": "lr: {low: a, high: b, kind: real}\n",
}
PRINTED = {
    "ls": "lists the groups",
    "ls algorithm/": "a slash at the end of a group",
    "show fedprox": "the group is told by the choice",
    "show algorithm=fedprox": "as on the command line of a run",
    "show algorithm/fedprox.yaml": "as the file is called",
}


def test_commands(pool: Pool) -> None:
    as_expected(pool, [*refused(COMMANDS, before="", files=FILES), *accepted(PRINTED, before="", sane=False)])


@pytest.mark.nightly
def test_passwords_of_a_tracker_are_masked(pool: Pool) -> None:
    def masked(answer: Answer) -> None:
        assert "s3cr3t" not in answer.stdout + answer.stderr + str(answer.summaries), "the password is printed"

    addresses = [
        "mysql://user:s3cr3t@host/db", "http://user:s3cr3t@localhost:1/x", "postgresql://u:s3cr3t@h:1/d?sslmode=a", "mysql://u:a@s3cr3t@h",
        "http://localhost:1/?password=s3cr3t", "http://localhost:1/?token=s3cr3t&x=1", "mysql://u:a/s3cr3t@h/d", "nonsense://u:s3cr3t@h",
    ]  # fmt: skip
    why = "a tracker that cannot be reached costs a warning, never a run"
    tracked = (*T.split(), "tracker=mlflow")
    cases = [Case((*tracked, f'tracker.uri="{address}"', "lr=nan"), "lr", check=masked) for address in addresses]
    cases += [Case((*tracked, f'tracker.uri="{address}"'), reason=why, check=masked) for address in addresses[-1:]]
    as_expected(pool, cases)


NO_PLACE: dict[str, tuple[str, dict[str, str | None]]] = {
    "results_dir=/proc/none": ("results_dir=/proc/none", {}),
    "results_dir=/dev/null/x": ("results_dir", {}),
    "results_dir=file": ("results_dir=file", {}),
    "'results_dir=\"\"'": ("results_dir", {}),
    "results_dir=~no_such_user/x": ("results_dir=~no_such_user/x", {}),
    "results_dir=taken": ("results_dir=taken", {}),
    "cache_dir=~no_such_user/x": ("cache_dir=~no_such_user/x", {}),
    "data_dir=~no_such_user": ("data_dir", {}),
    "dataset=cora ~dataset.num_nodes data_dir=/dev/null": ("num_nodes|dev/null", {}),
    "results_dir=~/x": ("results_dir", {"HOME": "/proc"}),
    "lr=3": ("cache_dir", {"FGL_BENCH_CACHE": ""}),
    "lr=5": ("control characters|UTF-8|surrogates", {"FGL_BENCH_DATA": "a\udcffb"}),
    "-m lr=1,2": ("proc", {"FGL_BENCH_SWEEP_DIR": "/proc/nowhere"}),
    "'lr=${oc.env:FGL_BENCH_DATA}'": ("lr", {"FGL_BENCH_DATA": "nan"}),
}  # fmt: skip
SOME_PLACE: dict[str, tuple[str, dict[str, str | None]]] = {
    "lr=0.1": ("without HOME the password database knows it", {"HOME": None}),
    "lr=0.2": ("raw data is not read for a generated graph", {"FGL_BENCH_DATA": "/proc/nowhere"}),
    "lr=0.4": ("the terminal's kind is not read", {"TERM": "nonsense", "COLUMNS": "nonsense", "LANG": "nonsense", "LC_ALL": "C"}),
    "lr=0.6": ("nothing of Hydra's is read from there", {"HYDRA_FULL_ERROR": "0", "HYDRA_MAIN_MODULE": "fgl_bench.cli.main"}),
    "'results_dir=results/a b'": ("a folder may have a space", {}),
}  # fmt: skip
HERE: dict[str, Any] = {"file": "", "taken/csbm": "a file where a folder must be"}


def test_places_that_cannot_be_written_or_read(pool: Pool) -> None:
    cases = [Case((*T.split(), *shlex.split(text)), message, files=HERE, variables=more) for text, (message, more) in NO_PLACE.items()]
    as_expected(pool, cases)
