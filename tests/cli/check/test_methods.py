"""Every promise of a method has a faulty method that breaks it, and the package's own keep them all."""

from __future__ import annotations

import re

import pytest

from fgl_bench.cli.check import examine
from fgl_bench.config.choices import config_folder
from tests.test_commands import GOOD, MIX, written

ALGORITHMS = sorted(path.stem for path in (config_folder() / "algorithm").glob("[!_]*.yaml"))
EVERYBODY = "normalize(self.setting.weights)[:, None]"
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
        GOOD + LOSS.format(others=" | step.batch.val"),
        "labels outside training change nothing: .* of validation nodes .*uses_validation",
    ),
    "averages_absent_clients": (MIX.format(weights=EVERYBODY), "absent clients change nothing: client . of seed . .* in round 1"),
    "refines_with_absent_clients": (
        f"{GOOD}\n    def refine(self, previous, received, uploaded, arrived):\n"
        "        return received + 0.1 * uploaded.mean(1, keepdim=True)",
        "absent clients change nothing",
    ),
    "reads_labels_of_absent_clients": (
        MIX.format(
            weights="normalize(self.setting.weights ** (self.setting.batch.labels * self.setting.batch.train).view(len(arrived), -1)"
            ".double().mean(1, True), arrived)[:, None]"
        ),
        "absent clients change nothing",
    ),
    "averages_late_clients": (
        """
    def prepare(self, setting):
        super().prepare(setting)
        self.here = []

    def report(self, trips):
        self.here += trips.rows
        return {}

    def mix(self, reports, arrived):
        there, self.here = torch.isin(torch.arange(arrived.numel()), torch.tensor(self.here)).view_as(arrived), []
        return Mixing(normalize(self.setting.weights, there)[:, None])
""",
        "absent clients change nothing",
    ),
    "uploads_more_than_it_declares": (
        f"{GOOD}\n    def report(self, trips):\n        return {{'everything': trips.trained.repeat(1, 9)}}",
        r"bytes are counted: clients upload 6,\d\d\d bytes a trip .* declares 652",
    ),
    "subtracts": (
        MIX.format(weights="(3 * normalize(arrived.double()) - 2 * torch.eye(arrived.shape[1])[arrived.int().argmax(1)])[:, None]"),
        "rows of averages sum to one, none is negative: an average has the negative weight -1.25",
    ),
    "forgets_at_a_checkpoint": (
        f"""    rebuilt = ("change",)

    def prepare(self, setting):
        super().prepare(setting)
        self.change = 0.0
{GOOD}
    def refine(self, previous, received, uploaded, arrived):
        self.change = 0.5 * self.change + received - previous
        return previous + self.change""",
        "a run resumed from a checkpoint gives the same numbers: after an interruption the model differs",
    ),
    "holds_an_iterator": (
        f"{GOOD}\n    def prepare(self, setting):\n        super().prepare(setting)\n        self.turns = iter([1])",
        r"a run resumed from a checkpoint gives the same numbers: method.turns \(an object of builtins.iter\) cannot be saved",
    ),
    "answers_nonsense": (
        f"{GOOD}\n    def predict(self, *arguments):\n        return super().predict(*arguments) * torch.nan",
        r"scores are finite: predict\(\) gives logits that are not finite",
    ),
    "scores_nonsense": (
        f"# ServerRounds, TrainedScore\n{GOOD}\n    def score_trained(self, score, trips):\n"
        "        return score(trips.output.logits, trips.batch) * torch.nan",
        "scores are finite: a score of a trained model is not finite",
    ),
}


def broken(said: str) -> list[str]:
    return [line.split("BROKEN")[1].strip() for line in said.splitlines() if line.startswith("  BROKEN")]


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_method_is_refused_for_its_fault_alone(name, tmp_path, capsys):
    body, words = FAULTY[name]
    assert examine(str(written(tmp_path, name, body)), ["rounds=4"]) == 1
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
        return Mixing(normalize(self.setting.weights, arrived)[:, None])

    def report(self, trips):
        return {"size": trips.trained.norm(dim=1)}

    def refine(self, previous, received, uploaded, arrived):
        self.last = torch.where(arrived[..., None], uploaded, self.last)
        return received + 0.01 * (self.last.mean(1, keepdim=True) + self.sizes.mean(1)[:, None, None])

    def traffic(self):
        model = self.setting.layout.count
        return Traffic({"model": model, "size": 1}, {"model": model})
""",
    "a_report_that_is_not_sent": f"unsent = ('model',)\n{GOOD}\n    def report(self, trips):\n        return {{'model': trips.trained}}",
    "clients_with_parts_of_their_own": """
    def mix(self, reports, arrived):
        here = normalize(self.setting.weights, arrived)[:, None].expand(-1, arrived.shape[1], -1)
        return Mixing(here, shared=tuple(self.setting.layout.shapes)[:1])
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


SERVED = ("fedaas", "fedaas1", "fedaas2", "fedall", "fedcross", "fedgraph", "fedlocal", "fedpns", "graphfed")
CHEAP = {
    **dict.fromkeys(SERVED, ["algorithm.batches=1"]),
    "fediih": ["model.width=4", "model.layers=1", "model.iterations=2"],
    "fedssa": ["algorithm.attempts=1", "algorithm.iterations=2"],
    "fedtad": ["algorithm.outer=1", "algorithm.generator_steps=1", "algorithm.student_steps=1", "algorithm.pseudo_nodes=12"],
    "feddep": ["algorithm.gen_hidden=[8]", "algorithm.encoder_epochs=1", "algorithm.cluster_epochs=[0,0,1]"],
    "fedsage_plus": ["algorithm.gen_rounds=1", "algorithm.gen_hidden=[8]", "algorithm.latent=4"],
}


# One of every kind; the others are slow.
KINDS = ("fedavg", "fedsa_gcl", "dfed_sst", "fedaas", "fed_pub")


@pytest.mark.parametrize("name", [name if name in KINDS else pytest.param(name, marks=pytest.mark.nightly) for name in ALGORITHMS])
def test_the_package_s_methods_keep_all_promises(name, capsys):
    status = examine(name, ["rounds=3", *CHEAP.get(name, [])])
    assert status == 0, capsys.readouterr().out


def test_labels_that_a_server_holds_count_too(tmp_path, capsys):
    body = f"""# ServerRounds, ServerNodes
    uses_validation = True
    shift = None
{GOOD}
    def observe(self, logits):
        server = self.setting.server
        self.shift = (server.labels * server.MASK).double().mean(1)

    def correct_gradient(self, step, gradient):
        if self.shift is None:
            return gradient
        return gradient * (1 + self.shift[[row // self.setting.num_clients for row in step.rows], None])
"""
    assert examine(str(written(tmp_path, "watches_validation", body.replace("MASK", "val"))), ["split=iid_server"]) == 0
    assert examine(str(written(tmp_path, "watches_test", body.replace("MASK", "test"))), ["split=iid_server"]) == 1
    assert "of test nodes" in broken(capsys.readouterr().out)[0]


def test_a_parameter_that_moves_without_a_gradient_is_named(tmp_path, capsys):
    zeroed = """
    def correct_gradient(self, step, gradient):
        for name in self.setting.model.chain(self.setting.layout)[-1]:
            step.layout.view(gradient, name).zero_()
        return gradient
"""
    assert examine(str(written(tmp_path, "zeroes", GOOD + zeroed)), []) == 0
    assert re.search(r"warning: conv1\.weight: correct_gradient\(\) leaves no gradient.*frozen", capsys.readouterr().out)
    frozen = """
    @property
    def frozen(self):
        return self.setting.model.chain(self.setting.layout)[-1]
"""
    assert examine(str(written(tmp_path, "freezes", GOOD + frozen)), []) == 0
    assert "warning" not in capsys.readouterr().out
