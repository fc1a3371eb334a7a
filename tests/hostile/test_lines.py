"""Bad input is answered in one line that names the key and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.hostile.bed import Case, Pool, as_expected
from tests.hostile.worker import Answer

REFUSED = {
    "dataset=nope": ["dataset=nope", "cora", "csbm"],
    "dataset=coraa": ["did you mean cora, cora_ml or", "fgl-bench ls dataset"],
    "algorithm=knn.py": ["algorithm=knn.py: there is no such file"],
    "tabel": ["there is no such command; did you mean table?"],
    "experiment=nope/table": ["experiment=nope/table"],
    "bogus_key=1": ["bogus_key", "unknown key", "num_clients"],
    "algorithm=fedprox algorithm.mue=1": ["algorithm.mue", "did you mean mu?"],
    "num_clients=1.5": ["num_clients=1.5", "integer"],
    "overwrite=maybe": ["overwrite=maybe", "true or false"],
    "lr=null": ["lr=null", "null"],
    "num_clients=0": ["num_clients=0", "allowed: 1"],
    "seeds=[]": ["seeds=[]", "at least one"],
    "seeds=[1,1]": ["seeds=[1, 1]", "distinct"],
    "split.ratios=[0.9,0.9,0.9]": ["split.ratios", "0.9", "sum"],
    "rounds=5 trips=7": ["rounds=5", "trips=7", "100"],
    "opt_state=keep": ["opt_state=keep", "persist, reset"],
    "device=tpu": ["device=tpu", "auto, cpu, cuda"],
    "scenario=sync": ["scenario=sync", "fedsa_gcl", "semi_async"],
    "algorithm=fedavg scenario=semi_async": ["scenario=semi_async", "fedavg", "scenario=sync"],
    "tracker=null": ["group", "dataset=cora"],
    "nonsense": ["there is no such command"],
    "num_clients=99999": ["num_clients=99999", "2708"],
    "dataset=cora data_dir=nowhere": ["nowhere/Cora/raw/ind.cora.x", "dataset=csbm"],
}


def says(parts: list[str]) -> Callable[[Answer], None]:
    """A check that the message has all parts, in a few lines."""

    def check(answer: Answer) -> None:
        assert answer.status == 1 and len(answer.stderr.splitlines()) <= 4, answer.stderr
        assert all(part in answer.stderr for part in parts), answer.stderr

    return check


def test_bad_input_is_refused_in_a_line_that_names_key_and_remedy(pool: Pool) -> None:
    cases = [Case(tuple(text.split()), re.escape(parts[0]), files={"file": ""}, check=says(parts)) for text, parts in REFUSED.items()]
    as_expected(pool, cases)
