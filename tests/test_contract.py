"""``fgl-bench check``: every promise has a faulty class that breaks it, and the package's own classes keep them all."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import fgl_bench.reporting.plan
from fgl_bench.algorithms.base import Algorithm
from fgl_bench.cli import main
from fgl_bench.config import validate
from fgl_bench.contract import examine
from fgl_bench.errors import PACKAGE, UserError, raised_by_user
from fgl_bench.scenarios.hooks import HOOKS, check_hooks
from fgl_bench.schema import config_folder
from tests.test_commands import GOOD, METHOD, METHODS, MIX, written

CONF = config_folder()
ALGORITHMS, MODELS, SPLITS = (sorted(path.stem for path in (CONF / group).glob("[!_]*.yaml")) for group in ("algorithm", "model", "split"))

# ---- methods

FEDERATED = "normalise(self.setting.weights, arrived)[:, None]"
EVERYBODY = "normalise(self.setting.weights)[:, None]"
LOSS = """
    def local_loss(self, step):
        known = step.batch.train{others}
        index = known.flatten().nonzero()[:, 0]
        logits, labels = step.output.logits.flatten(0, 1)[index], step.batch.labels.flatten(0, 1)[index]
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / 10
"""
FAULTY = {
    "trains_on_test_labels": (GOOD + LOSS.format(others=" | step.batch.test"), "labels outside training change nothing: .* of test nodes"),
    "trains_on_validation_labels": (
        GOOD + LOSS.format(others=" | step.batch.val"), "labels outside training change nothing: .* of validation nodes .*uses_validation",
    ),
    "averages_absent_clients": (MIX.format(weights=EVERYBODY), "absent clients change nothing: client . of seed . .* absent clients in round 1"),
    "refines_with_absent_clients": (
        f"{GOOD}\n    def refine(self, received, trained, arrived):\n        return received + 0.1 * trained.mean(1, keepdim=True)",
        "absent clients change nothing",
    ),
    "reads_labels_of_absent_clients": (
        MIX.format(weights="normalise(self.setting.weights ** (self.setting.batch.labels * self.setting.batch.train).view(len(arrived), -1)"
                           ".double().mean(1, True), arrived)[:, None]"),
        "absent clients change nothing",
    ),
    "uploads_more_than_it_declares": (
        f"{GOOD}\n    def report(self, trips):\n        return {{'everything': trips.trained.repeat(1, 9)}}",
        r"bytes are counted: clients upload 6,\d\d\d bytes a trip .* declares 652",
    ),
    "subtracts": (
        MIX.format(weights="(3 * normalise(arrived.double()) - 2 * torch.eye(arrived.shape[1])[arrived.int().argmax(1)])[:, None]"),
        "rows of averages sum to one, none is negative: an average has the negative weight -1.25",
    ),
    "answers_nonsense": (
        f"{GOOD}\n    def predict(self, model, parameters, batch, first):\n        return super().predict(model, parameters, batch, first) * torch.nan",
        r"scores are finite: predict\(\) gives logits that are not finite",
    ),
    "scores_nonsense": (
        f"{GOOD}\n    def score_trained(self, score, trips):\n        return super().score_trained(score, trips) * torch.nan",
        "scores are finite: a score of a trained model is not finite",
    ),
}  # fmt: skip


def broken(said: str) -> list[str]:
    return [line.split("BROKEN")[1].strip() for line in said.splitlines() if line.startswith("  BROKEN")]


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_method_is_refused_for_its_fault_alone(name, tmp_path, capsys):
    body, words = FAULTY[name]
    assert examine(str(written(tmp_path, name, body)), []) == 1
    found = broken(capsys.readouterr().out)
    # Who averages absent clients or has negative weights does nothing else wrong.
    assert len(found) == 1 and re.match(words, found[0]), found


PERMITTED = {
    "a_declared_use_of_validation_labels": f"uses_validation = True\n{GOOD}{LOSS.format(others=' | step.batch.val')}",
    "a_memory_of_the_last_uploads": """
    def prepare(self, setting):
        super().prepare(setting)
        shape = len(setting.seeds), setting.num_clients, setting.layout.size
        self.last = torch.zeros(shape, dtype=setting.batch.dtype)

    def mix(self, reports, arrived):
        self.sizes = reports["size"]
        return Mixing(normalise(self.setting.weights, arrived)[:, None])

    def report(self, trips):
        return {"size": trips.trained.norm(dim=1)}

    def refine(self, received, trained, arrived):
        self.last = torch.where(arrived[..., None], trained, self.last)
        return received + 0.01 * (self.last.mean(1, keepdim=True) + self.sizes.mean(1)[:, None, None])

    def traffic(self):
        model = self.setting.layout.count
        return Traffic({"model": model, "size": 1}, {"model": model})
""",
    "a_report_that_is_not_sent": f"unsent = ('model',)\n{GOOD}\n    def report(self, trips):\n        return {{'model': trips.trained}}",
    "clients_with_parts_of_their_own": """
    def mix(self, reports, arrived):
        here = normalise(self.setting.weights, arrived)[:, None].expand(-1, arrived.shape[1], -1)
        return Mixing(here, receivers=arrived, shared=tuple(self.setting.layout.shapes)[:1])
""",
}


@pytest.mark.parametrize("name", PERMITTED)
def test_what_is_legitimate_passes(name, tmp_path, capsys):
    assert examine(str(written(tmp_path, name, PERMITTED[name])), []) == 0, capsys.readouterr().out


def test_a_declared_use_of_validation_labels_is_no_use_of_test_labels(tmp_path, capsys):
    body = f"uses_validation = True\n{GOOD}{LOSS.format(others=' | step.batch.test')}"
    assert examine(str(written(tmp_path, "declares_too_little", body)), []) == 1
    assert "of test nodes" in broken(capsys.readouterr().out)[0]


def test_a_round_without_arrivals_is_no_average(capsys):
    assert examine("fedavg", ["scenario.deadline=0.5", "scenario.slow_fraction=1"]) == 0, capsys.readouterr().out


KEYS = {"buffer": "null", "weighting": "uniform", "server_lr": 1.0, "staleness_exponent": 0.5, "wait": "true"}  # of FedBuff


def test_a_semi_asynchronous_upload_is_covered_too(tmp_path, capsys):
    path = tmp_path / "own_talkative.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom fgl_bench.algorithms.fedbuff import FedBuff\n\n\n@dataclass\nclass Talkative(FedBuff):\n"
        "    def report(self, trips):\n        return {'model': trips.trained}\n",
        encoding="utf-8",
    )
    keys = [f"algorithm.{key}={value}" for key, value in KEYS.items()]
    assert examine(str(path), keys) == 1
    assert re.match(r"bytes are counted: clients upload [\d,]+ bytes a trip", broken(capsys.readouterr().out)[0])


# ---- what is refused before or while a method runs, by check and by a run


def spoken(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> tuple[int, str, str]:
    """Status, stdout and stderr of ``fgl-bench`` in ``folder``."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["fgl-bench", *arguments])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("FGL_BENCH_CACHE", str(folder / "cache"))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setenv("FGL_BENCH_SWEEP_DIR", str(folder / "sweep"))
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, *capsys.readouterr()


TINY = (
    "dataset=csbm",
    "dataset.num_nodes=120",
    "dataset.num_edges=240",
    "seeds=[0,1]",
    "trips=8",
    "num_clients=4",
    "progress=false",
    "seeds_per_chunk=2",
)
SERVE = "\n    def serve(self, server, arrivals):\n        return []\n"
REFUSED = {
    "no_scenario": (f"{GOOD}\n    scenarios = ()", "NoScenario.scenarios is empty; it must name at least one scenario, such as ('sync',)"),
    "a_word_of_scenarios": (f"{GOOD}\n    scenarios = 'sync'", "scenarios is 'sync'; it must name at least one scenario"),
    "serves_in_rounds": (
        GOOD + SERVE,
        "ServesInRounds.serve is never called: ServesInRounds.scenarios is ('sync',), and only scenario=semi_async calls serve",
    ),
    "refines_without_server": (
        f"{GOOD}\n    scenarios = ('decentralized',)\n    def refine(self, received, trained, arrived):\n        return received",
        "RefinesWithoutServer.refine is never called: RefinesWithoutServer.scenarios is ('decentralized',), and only scenario=sync calls refine",
    ),
    "mixes_flat": (
        MIX.format(weights="torch.ones(4, 4) / 4"),
        "mix() returned [C, C] = [4, 4]; expected [S, C, C] or [S, 1, C] = [2, 4, 4] or [2, 1, 4]",
    ),
    "mixes_nothing": ("\n    def mix(self, reports, arrived):\n        pass", "mix() returned None; expected a Mixing"),
    "penalises_one": (f"{GOOD}\n    def local_penalty(self, step):\n        return step.theta.sum()", "local_penalty() returned []; expected [k] = [8]"),
    "loses_many": (
        f"{GOOD}\n    def local_loss(self, step):\n        return step.theta.sum(1)", "local_loss() returned [k] = [8]; expected a scalar",
    ),
    "corrects_nothing": (f"{GOOD}\n    def correct_gradient(self, step, gradient):\n        pass", "correct_gradient() returned None; expected [k, P] = [8, "),
    "reports_nothing": (f"{GOOD}\n    def report(self, trips):\n        pass", "report() returned None; expected tensors by name"),
    "reports_one": (
        f"{GOOD}\n    def report(self, trips):\n        return {{'norm': trips.trained.norm()}}",
        "report() returned 'norm' = []; expected a tensor with k = 8 rows",
    ),
    "refines_nothing": (f"{GOOD}\n    def refine(self, received, trained, arrived):\n        pass", "refine() returned None; expected [S, C, P] = [2, 4, "),
    "exchanges_nothing": (
        f"{GOOD}\n    scenarios = ('decentralized',)\n    def exchange(self, meeting):\n        pass", "exchange() returned None; expected an Exchange",
    ),
    "serves_nothing": (
        "\n    scenarios = ('semi_async',)\n    def serve(self, server, arrivals):\n        pass", "serve() returned None; expected a list of messages",
    ),
    "raises_in_mix": ("\n    def mix(self, reports, arrived):\n        raise ValueError('two\\nlines')", "own_raises_in_mix.py:14 in mix: ValueError: two"),
    "leaves_in_mix": ("\n    def mix(self, reports, arrived):\n        raise SystemExit(0)", "own_leaves_in_mix.py:14 in mix: SystemExit: 0"),
}  # fmt: skip


@pytest.mark.parametrize("way", ["check", "run"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_one_line(name, way, tmp_path, monkeypatch, capsys):
    body, words = REFUSED[name]
    own = f"own_{name}_{way}"
    cls = "".join(map(str.title, name.split("_")))
    (tmp_path / f"{own}.py").write_text(METHOD.format(name=cls, body=body.lstrip()), encoding="utf-8")
    scenario = re.search(r"scenarios = \('(\w+)'", body)
    target = ["algorithm=fedavg", f"algorithm._target_={own}.{cls}", f"scenario={scenario[1] if scenario else 'sync'}", *TINY]
    status, _, said = spoken(["check", f"{own}.py"] if way == "check" else target, tmp_path, monkeypatch, capsys)
    lines = [line for line in said.splitlines() if not line.startswith("warning:")]
    assert status == 1 and len(lines) == 1 and "Traceback" not in said, said
    assert words.replace(f"own_{name}", own) in lines[0] and not (tmp_path / "results").exists(), said


@pytest.mark.parametrize("arguments", [["check", "own_leaving.py"], ["algorithm=fedavg", "algorithm._target_=own_leaving.Leaving", *TINY]])
def test_a_module_that_leaves_the_program_is_an_error(arguments, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_leaving.py").write_text("import sys\n\nsys.exit(0)\n", encoding="utf-8")
    status, _, said = spoken(arguments, tmp_path, monkeypatch, capsys)
    assert status == 1 and "cannot be imported (" in said and "own_leaving.py:3: SystemExit: 0)" in said and len(said.splitlines()) == 1


def test_a_process_that_trains_some_seeds_tells_the_users_line_too(tmp_path, monkeypatch, capsys):
    written(tmp_path, "raises_apart", "\n    def mix(self, reports, arrived):\n        raise ValueError('apart')")
    target = ["algorithm=fedavg", "algorithm._target_=own_raises_apart.RaisesApart", *TINY, "seeds_per_chunk=1"]
    status, _, said = spoken(target, tmp_path, monkeypatch, capsys)
    assert status == 1 and said.splitlines()[-1].endswith("own_raises_apart.py:14 in mix: ValueError: apart") and "Traceback" not in said


def test_the_whole_traceback_is_a_variable_away(tmp_path, monkeypatch, capsys):
    written(tmp_path, "raises_aloud", "\n    def mix(self, reports, arrived):\n        raise ValueError('aloud')")
    monkeypatch.setenv("FGL_BENCH_DEBUG", "1")
    status, _, said = spoken(["check", "own_raises_aloud.py"], tmp_path, monkeypatch, capsys)
    assert status == 1 and "Traceback" in said and "scenarios/sync.py" in said


def test_an_error_of_the_package_itself_is_not_put_on_the_user():
    with pytest.raises(AttributeError) as caught:
        validate(None)
    assert raised_by_user(caught.value) is None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hooks_of_the_package_s_methods_are_called(name):
    module, _, cls = OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")._target_.rpartition(".")
    method = getattr(importlib.import_module(module), cls)
    check_hooks(method)
    assert set(method.scenarios) <= set(HOOKS)


def test_the_table_of_hooks_is_what_scenarios_call():
    for scenario, hooks in HOOKS.items():
        assert all(hasattr(Algorithm, hook) for hook in hooks)
        text = "".join(
            (PACKAGE / "scenarios" / f"{part}.py").read_text(encoding="utf-8")
            for part in ("base", scenario)
            if (scenario, part) != ("semi_async", "base")
        )
        if scenario == "decentralized":
            text += inspect.getsource(Algorithm.exchange)
        called = set(re.findall(r"(?:algorithm|method|self)\.(\w+)", text)) & {hook for others in HOOKS.values() for hook in others}
        assert called == set(hooks), scenario


@pytest.fixture
def composing_once(monkeypatch):
    """Schemas are registered once: for each composition anew they would take a third of these tests' time."""
    with fgl_bench.reporting.plan.Composer():
        pass
    monkeypatch.setattr(fgl_bench.reporting.plan, "register_all", lambda store: None)


CHEAP = {
    **dict.fromkeys(("fedaas", "fedaas1", "fedaas2", "fedall", "fedcross", "fedgraph", "fedlocal", "fedpns", "graphfed"), ["algorithm.batches=2"]),
    "fediih": ["model.width=4", "model.layers=1"],
    "fedtad": ["algorithm.outer=1", "algorithm.generator_steps=1", "algorithm.student_steps=1", "algorithm.pseudo_nodes=12"],
    "fedsage_plus": ["algorithm.gen_rounds=1", "algorithm.gen_hidden=[8]", "algorithm.latent=4"],
}  # fmt: skip


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_package_s_methods_keep_all_promises(name, capsys, composing_once):
    status = examine(name, CHEAP.get(name, []))
    assert status == 0, capsys.readouterr().out


def test_labels_that_a_server_holds_count_too(tmp_path, capsys):
    body = f"""uses_validation = True
{GOOD}
    def observe(self, logits):
        server = self.setting.server
        self.shift = (server.labels * server.MASK).double().mean()

    def correct_gradient(self, step, gradient):
        return gradient * (1 + self.shift)
"""
    assert examine(str(written(tmp_path, "watches_validation", body.replace("MASK", "val"))), ["split=iid_server"]) == 0
    assert examine(str(written(tmp_path, "watches_test", body.replace("MASK", "test"))), ["split=iid_server"]) == 1
    assert "of test nodes" in broken(capsys.readouterr().out)[0]


# ---- backbones

BACKBONE = """
from dataclasses import dataclass

import torch

from fgl_bench.engine.batch import gcn_operator, plain_operator
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.models.base import Backbone, Output


@dataclass
class Own(Backbone):
    hidden: int
    dropout: float

    def layout(self, num_features, num_classes):
        shapes = {{"first.weight": (num_features, self.hidden), "last.weight": (self.hidden, num_classes)}}
        return ParameterLayout(shapes, inputs=("first.weight",))

    def first(self, parameters, batch):
        return batch.operator(gcn_operator) @ (batch.features @ parameters["first.weight"])

    def forward(self, parameters, batch, first, dropout):
        hidden = dropout(torch.relu(first))
        {line}
        return Output(hidden, logits)
{more}
"""
PLAIN = "logits = hidden @ parameters['last.weight']"
OTHER_SHAPES = """
    def initialise(self, layout, generator):
        return {name: torch.ones(shape[::-1], dtype=torch.float64) for name, shape in layout.shapes.items()}
"""
INFINITE = """
    def initialise(self, layout, generator):
        return {name: torch.full(shape, torch.inf, dtype=torch.float64) for name, shape in layout.shapes.items()}
"""
CHAINS = """
    def chain(self, layout):
        return [("first.weight",)]
"""
BACKBONES = {
    "sound": (PLAIN, "", None),
    "looks_at_other_clients": (f"{PLAIN}; logits = logits - logits.mean(0, keepdim=True)", "", "a client alone equals the client among others"),
    "counts_padding": (f"{PLAIN}; logits = logits + hidden.shape[1]", "", "padding changes nothing: client 1 without padding"),
    "divides_by_degree": (f"{PLAIN}; logits = logits / batch.degree[..., None]", "", "outputs are finite, of isolated nodes too: logits of node 0 of client 0, which has no edges"),
    "draws_by_itself": (f"{PLAIN}; logits = torch.nn.functional.dropout(logits)", "", "a repeated pass gives the same numbers"),
    "draws_while_it_trains": (
        f"{PLAIN}; logits = logits if dropout.__class__.__name__ == 'function' else torch.nn.functional.dropout(logits)", "",
        "randomness comes from the given dropout alone: the same keys",
    ),
    "forgets_a_parameter": ("logits = hidden @ parameters['last.weight'].detach()", "", "finite gradients reach every parameter: no gradient reaches the parameter last.weight"),
    "steep": (f"{PLAIN}; logits = logits + torch.sqrt(logits - logits.detach())", "", "finite gradients reach every parameter: the gradient of the parameter"),
    "answers_hidden": ("logits = hidden", "", "outputs have their shapes: logits are [4, 40, 8]; expected [k, n, Y] = [4, 40, 3]"),
    "answers_flat": (f"{PLAIN}; hidden = hidden.flatten(0, 1)", "", "outputs have their shapes: hidden is [160, 8]"),
    "initialises_other_shapes": (PLAIN, OTHER_SHAPES, "parameters are as layout() says: initialise() gives first.weight of shape [8, 16]; layout() has [16, 8]"),
    "initialises_infinity": (PLAIN, INFINITE, "parameters are as layout() says: initialise() gives numbers that are not finite"),
    "chains_a_part": (PLAIN, CHAINS, "parameters are as layout() says: chain() names first.weight"),
    "uses_another_s_model": (
        f"{PLAIN}; mean = parameters['last.weight'].mean(); logits = logits + mean - mean.detach()", "",
        "clients do not see each other's models: what client 0 answers depends on the model of client 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BACKBONES)
def test_a_faulty_backbone_is_refused(name, tmp_path, capsys, composing_once):
    line, more, words = BACKBONES[name]
    path = tmp_path / f"own_net_{name}.py"
    path.write_text(BACKBONE.format(line=line, more=more), encoding="utf-8")
    status = examine(str(path), ["model.dropout=0.3"])
    said = capsys.readouterr().out
    if words is None:
        assert status == 0 and said.endswith("Own: keeps all promises\n"), said
    else:
        assert status == 1 and any(line.startswith(words) for line in broken(said)), said


@pytest.mark.parametrize("name", MODELS)
def test_the_package_s_backbones_keep_all_promises(name, capsys, composing_once):
    assert examine(f"model/{name}", []) == 0, capsys.readouterr().out


# ---- splits

SPLIT = """
from dataclasses import dataclass

import numpy as np

from fgl_bench.data.splits.base import Split


@dataclass
class Own(Split):
    def assign(self, graph, num_clients, seed):
        rng = np.random.default_rng(seed)
        parts = [np.sort(part) for part in np.array_split(rng.permutation(graph.num_nodes), num_clients)]
        {line}
"""
OWN_SPLITS = {
    "sound": ("return parts", None),
    "one_too_many": ("return [*parts, parts[0]]", "there are as many clients as asked for, none empty: there are 11 clients, not 10"),
    "an_empty_one": ("return [*parts[1:], parts[0][:0]]", "there are as many clients as asked for, none empty: client 9 has no node"),
    "out_of_range": ("return [part + 1 for part in parts]", "clients have ascending ids of nodes, none twice: client . has a node outside 0 to 159"),
    "twice": ("return [np.sort(np.r_[part, part[:1]]) for part in parts]", "clients have ascending ids of nodes, none twice: client 0 has a node twice"),
    "unsorted": ("return [part[::-1] for part in parts]", "clients have ascending ids of nodes, none twice: the nodes of client 0 are not ascending"),
    "no_ids": ("return [part / 2 for part in parts]", "clients have ascending ids of nodes, none twice: client 0 has an array of float64"),
    "dice": ("return [parts[i] for i in np.random.permutation(num_clients)]", "the same seed gives the same clients"),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_SPLITS)
def test_a_faulty_split_is_refused(name, tmp_path, capsys, composing_once):
    line, words = OWN_SPLITS[name]
    path = tmp_path / f"own_split_{name}.py"
    path.write_text(SPLIT.format(line=line), encoding="utf-8")
    status = examine(str(path), [])
    said = capsys.readouterr().out
    if words is None:
        assert status == 0 and said.endswith("Own: keeps all promises\n"), said
    else:
        assert status == 1 and any(re.match(words, line) for line in broken(said)), said


@pytest.mark.parametrize("name", SPLITS)
def test_the_package_s_splits_keep_all_promises(name, capsys, composing_once):
    assert examine(f"split/{name}", []) == 0
    said = capsys.readouterr().out
    assert ("nodes have no client" in said) == (name == "metis_overlap")


def test_other_groups_are_not_tried():
    with pytest.raises(UserError, match="is a choice of dataset; check tries choices of algorithm, model, split"):
        examine("dataset/cora", [])
    with pytest.raises(UserError, match=r"did you mean algorithm/fedprox\?"):
        examine("fedprx", [])


# ---- folders of one's own


def test_commands_know_the_folders_of_config_dir(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "mine dir"
    spoken(["cp", "fedprox", str(folder)], tmp_path, monkeypatch, capsys)
    for options in (["--config-dir", str(folder)], [f"--config-dir={folder}"]):
        status, said, _ = spoken([*options, "check", "my_fedprox", "algorithm.mu=0.5"], tmp_path, monkeypatch, capsys)
        assert status == 0 and said.endswith("my_fedprox: keeps all promises\n")
        assert "my_fedprox " in spoken([*options, "ls", "algorithm"], tmp_path, monkeypatch, capsys)[1]
        assert "mu: 0.01" in spoken([*options, "show", "my_fedprox"], tmp_path, monkeypatch, capsys)[1]
    status, said, _ = spoken([*options, "cp", "my_fedprox", "again"], tmp_path, monkeypatch, capsys)
    assert status == 0 and "again/algorithm/my_my_fedprox.yaml" in said
    status, _, said = spoken(["--config-dir", "nowhere", "ls"], tmp_path, monkeypatch, capsys)
    assert status == 1 and said == "fgl-bench: error: --config-dir nowhere: there is no such folder\n"


def test_a_method_of_one_s_own_is_tuned(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna", reason="needs the tune extra")
    body = METHODS["with_a_key"][0]
    written(tmp_path, "tuned", body)
    (tmp_path / "mine/algorithm").mkdir(parents=True)
    (tmp_path / "mine/algorithm/own.yaml").write_text("_target_: own_tuned.Tuned\npower: 1.0\n", encoding="utf-8")
    small = [*TINY, f"results_dir={tmp_path / 'runs'}", "trials=2"]
    (tmp_path / "space.yaml").write_text('"+algorithm.power": {choices: [0.5, 2.0]}\n', encoding="utf-8")
    target = ["algorithm=fedavg", "algorithm._target_=own_tuned.Tuned"]
    status, said, _ = spoken(["tune", "space.yaml", *target, *small], tmp_path, monkeypatch, capsys)
    assert status == 0 and "best of 2" in said
    (tmp_path / "space.yaml").write_text("algorithm.power: {choices: [0.5, 2.0]}\n", encoding="utf-8")
    status, said, _ = spoken(["--config-dir", "mine", "tune", "space.yaml", "algorithm=own", *small], tmp_path, monkeypatch, capsys)
    assert status == 0 and "fgl-bench --config-dir mine algorithm=own" in said
