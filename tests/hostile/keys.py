"""What the keys of every choice may be, transcribed from the comments in ``conf``: the oracle for hostile values.

``int[1,oo)`` and ``real(0,1]`` are numbers with their ends, ``?`` allows null, ``ints`` and ``reals`` are lists, ``a|b`` one of some words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.hostile.bed import GRAPH

CROSS = (
    "batches=int[1,oo) fanout=int?[1,oo) interval=int[0,oo) sampling=attention|uniform fetch=interval|batch between=history|drop "
    "link_mbps=real[0.000001,1000000000000] link_seconds=real[0,1000000000]"
)
ALGORITHMS = {
    "adafgl": "federated_rounds=int[0,oo) label_steps=int[0,oo) label_alpha=real[0,1] hops=int[0,oo) blend=real[0,1] beta=real[0,1] "
    "width=int[1,oo) head_dropout=real[0,1] softmaxes=double|single attention=softmax|raw fusion=soft|hard",
    "apfl": "alpha=real[0,1] adapt=trip|step|never decay=real[0,oo)",
    "d_psgd": "weights=metropolis|uniform order=train_mix|mix_train|lian",
    "dfed_sst": "refresh=int[1,oo) self_in_aggregation=bool label_source=train_pred|train|pred sources=int[1,oo) landmarks=int[1,oo) "
    "degree=wlsd|half",
    "dfedavgm": "momentum=real[0,1) bits=int?[2,16] lr=real?(0,oo)",
    "dis_pfl": "density=real(0,1] erk_power=real[0,oo) anneal=real[0,1] regrow=gradient|random clip=real?(0,oo)",
    "ditto": "penalty=real[0,oo)",
    "fed_pub": "tau=real[0,oo) sparsity=real[0,oo) proximity=real[0,oo) reg=paper|inert blocks=int[1,oo) block_nodes=int[1,oo) "
    "inside=real[0,1] between=real[0,1]",
    "fedaas": f"{CROSS.replace('interval=int[0', 'interval=int[2')} min_interval=int[1,10] loss_source=val|test rule=paper|authors",
    "fedasync": "alpha=real[0,1] staleness=constant|polynomial|hinge exponent=real[0,oo) hinge_slope=real[0,oo) hinge_b=real?[0,oo) "
    "offset=int[0,oo) halve_after=int?[1,oo) rho=real[0,oo)",
    "fedadam": "server_lr=real(0,oo) beta1=real[0,1) beta2=real[0,1) tau=real(0,oo) rule=adam|yogi|adagrad",
    "fedala": "adapted_layers=int[0,2] step_size=real[0,oo) sample=real(0,1] tolerance=real(0,oo) most_steps=int[1,oo)",
    "fedavg_finetune": "federated_rounds=int[0,oo) tuned=all|head|body head_layers=int[0,2]",
    "fedavgm": "momentum=real[0,1) server_lr=real(0,oo)",
    "fedbuff": "buffer=int?[1,3] server_lr=real[0,oo) staleness_exponent=real[0,oo) weighting=uniform|samples wait=bool",
    "fedcross": f"{CROSS} fanout_remote=int?[1,oo)",
    "fedbabu": "federated_rounds=int[0,oo) tuned=all|head|body head_layers=int[0,1]",
    "feddc": "alpha=real[0,oo) scaling=size|none clip=real?(0,oo) drift=bool control=mean_gradient|literal",
    "feddual": "gossip_steps=int[1,oo) noise=real[0,oo) clip=real(0,oo)",
    "fedexp": "epsilon=real[0,oo)",
    "fedgcn": "hops=int[0,2] exchange=sums|nodes",
    "fedgl": "weight=real[0,oo) confidence=real[0,oo) fusion=samples|uniform refresh=int[1,oo) "
    "pseudo_graph=real[0,oo) neighbours=int[1,oo)",
    "fedgnn": "matches=int[0,oo) expand_every=int[1,oo) ldp=bool clip=real(0,oo) epsilon=real(0,oo)",
    "fedgraph": "batches=int[1,oo) most=int[1,oo) noise=real[0,oo) target=real[0,1] cost_weight=real[0,oo) components=int[1,oo)",
    "fedgta": "steps=int[0,oo) alpha=real[0,1] temperature=real(0,oo) orders=int[1,oo) threshold=real[-1,oo) "
    "moments=hybrid|raw|central|none weights=confidence|samples|uniform",
    "feddep": "max_neighbors=int[0,oo) prototypes=int[1,oo) width=int[1,oo) sampled=int[1,oo) encoder_layers=int[1,oo) "
    "encoder_epochs=int[0,oo) encoder_lr=real(0,oo) hidden_share=real[0,1] latent=int[1,oo) gen_hidden=ints[1,oo) gen_dropout=real[0,1] "
    "gen_lr=real?(0,oo) gen_weight_decay=real[0,oo) degree_weight=real[0,oo) own_epochs=int[0,oo) shared_epochs=int[0,oo)",
    "fediih": "tau=real[0,oo) elbo_weight=real[0,oo) inference=free|learned inference_layers=int[0,oo) "
    "inference_activation=leaky_relu|none",
    "fedper": "personal_layers=int[0,2]",
    "fedprox": "mu=real[0,oo)",
    "fedproto": "weight=real[0,oo) term=nodes|classes|prototypes average=uniform|samples|openfgl prediction=head|prototypes",
    "fedsa_gcl": "threshold=real[-1,oo) buffer=int?[1,3] steps=int[0,oo) keep=real[0,1] staleness_exponent=real[0,oo) "
    "lsc=paper|fedgta lsc_temperature=real?(0,oo) clustercast=bool push=most_similar|last orders=int[1,oo)",
    "fedsage_plus": "max_neighbours=int[0,oo) gen_rounds=int[0,oo) hidden_share=real[0,1] latent=int[1,oo) encoder_hidden=int[1,oo) "
    "gen_hidden=ints[1,oo) gen_dropout=real[0,1] gen_lr=real?(0,oo) gen_weight_decay=real[0,oo) degree_weight=real[0,oo)",
    "fedspray": "weight=real[0,oo) confidence=real[0,1] width=int[1,oo) proxy_lr=real(0,oo) begin=own|joint",
    "fedssa": "node_clusters=int[1,oo) structural_clusters=int[1,oo) latent=int[1,oo) elbo_weight=real[0,oo) semantic_weight=real[0,oo) "
    "l1=real[0,oo) edges=int[1,oo) encoder=shared|detached floor=real(0,oo) cap=real(0,oo) attempts=int[1,oo) iterations=int[1,oo)",
    "fedstruct": "hops=int[1,oo) width=int[1,oo) hidden=int[1,oo) spread=real(0,oo) structure_lr=real?(0,oo) "
    "structure_weight_decay=real[0,oo)",
    "fedtad": "outer=int[0,oo) generator_steps=int[0,oo) student_steps=int[0,oo) generator_lr=real(0,oo) student_lr=real(0,oo) "
    "weight_decay=real[0,oo) pseudo_nodes=int[5,oo) noise=int[1,oo) walk_length=int[0,oo) ce_weight=real[0,oo) divergence=kl|l1",
    "fedtgp": "weight=real[0,oo) term=nodes|classes|prototypes prediction=head|prototypes margin=farthest|nearest threshold=real[0,oo) "
    "server_epochs=int[0,oo) server_lr=real(0,oo) server_batch=int[1,oo)",
    "fgssl": "contrast_weight=real[0,oo) temperature=real(0,oo) structure_weight=real[0,oo) structure_temperature=real(0,oo) "
    "structure=neighborhoods|edges weak_edge_drop=real[0,1] weak_feature_mask=real[0,1] strong_edge_drop=real[0,1] "
    "strong_feature_mask=real[0,1]",
    "gcfl": "eps1=real[0,oo) eps2=real[0,oo) relative=bool warmup=int[0,oo) shared=all|conv",
    "gcfl_plus": "eps1=real[0,oo) warmup=int[0,oo) sequence=int[1,oo) standardize=bool",
    "global": "graph=full|disjoint",
    "gossip": "segments=int[1,oo) peers=int[1,2] weighting=samples|uniform",
    "graphfed": f"{CROSS} fanout_remote=int?[1,oo) weighting=similarity|authors sources=int[1,oo)",
    "moon": "mu=real[0,oo) temperature=real(0,oo) previous=int[1,oo) nodes=all|train",
    "osgp": "overlap=bool",
    "pens": "sampled=int?[1,oo) selected=int[1,2] first_phase=real[0,1] gossip_peers=int?[1,oo) weighting=samples|uniform",
    "pfedme": "inner_steps=int[1,oo) penalty=real[0,oo) outer_lr=real(0,oo) beta=real(0,oo)",
    "s2fgl": "repository_weight=real[0,oo) temperature=real(0,oo) slots=int[1,oo) sampled=real[0,1] important=real[0,1] alpha=real(0,1] "
    "alignment_weight=real[0,oo) aligned=real[0,1] neighbors=int[1,oo) eigenvectors=int[1,oo) projections=pairs|space",
    "scaffold": "server_lr=real(0,oo) control=mean_gradient|option_ii_literal weighting=uniform|samples",
    "twafl": "base=real[1,oo) loop=int[15,oo) exchange_rounds=ints[0,14] deep_layers=int[0,1] age_unit=arrival|cycle normalise=bool",
}  # fmt: skip
MODELS = {
    "bernnet": "orders=int[0,oo) hidden=int[1,oo) dropout=real[0,1] filter_dropout=real[0,1]",
    "chebnet": "orders=int[1,oo) hidden=int[1,oo) layers=int[1,oo) dropout=real[0,1] form=layers|filter",
    "disengcn": "factors=int[1,oo) width=int[1,oo) layers=int[1,oo) iterations=int[1,oo) temperature=real(0,oo) dropout=real[0,1]",
    "gamlp": "hops=int[0,oo) hidden=int[1,oo) layers=int[1,oo) dropout=real[0,1] propagation=auto|precomputed|lazy",
    "gat": "layers=int[1,oo) dropout=real[0,1] version=v1|v2 output_heads=int[1,oo) act=relu|elu attn_dropout=real[0,1]",
    "gbp": "hops=int[0,oo) beta=real[0,1] r=real[0,1] hidden=int[1,oo) layers=int[1,oo)",
    "gcn": "layers=int[1,oo) dropout=real[0,1] head=conv|linear propagation=auto|precomputed|lazy",
    "gin": "layers=int[1,oo) dropout=real[0,1] norm=batch|none head=mlp|linear",
    "graphsage": "layers=int[1,oo) dropout=real[0,1] head=conv|linear",
    "mlp": "hidden=int[1,oo) layers=int[1,oo) dropout=real[0,1]",
    "optbasis": "orders=int[0,oo) hidden=int[1,oo) dropout=real[0,1]",
    "s2gc": "hops=int[1,oo) alpha=real[0,1]",
    "sgc": "hops=int[0,oo)",
    "sign": "hops=int[0,oo) hidden=int[1,oo) layers=int[2,oo)",
    "unifilter": "orders=int[0,oo) tau=real[0,1] hidden=int[1,oo) layers=int[1,oo) basis=exact|code homophily=client|global "
    "default_homophily=real[0,1] per_feature=bool filter_lr=real?(0,oo) filter_weight_decay=real?[0,oo)",
}
OPTIMIZERS = {
    **dict.fromkeys(("adam", "adamw"), "beta1=real[0,1) beta2=real[0,1) eps=real(0,oo)"),
    "sgd": "momentum=real[0,1)",  # nesterov needs momentum
}
SPLITS = {
    "dirichlet": "alpha=real[0.001,oo) min_nodes=int[1,40] shares=per_class|per_client test=clients|server inductive=bool",
    "label_propagation": "sweeps=int[1,oo) clusters_per_client=int[1,oo)",
    "louvain": "resolution=real[1e-9,oo) delta=int[0,oo) backend=python_louvain|igraph",
    "metis": "test=clients|server inductive=bool",
    "fed_pub": "inductive=bool seed=int[0,oo) backend=pymetis|libmetis",
}
STRAGGLERS = "slow_fraction=real[0,1] lag_draw=per_run|per_trip jitter=real[0,1) cycle_seconds=real(0,1000000000]"
SCENARIOS = {
    "sync": f"{STRAGGLERS} deadline=real?(0,oo)",
    "semi_async": f"{STRAGGLERS} lag_unit=trips|time fast_trips=concurrent|atomic",
    "decentralized": f"{STRAGGLERS} degree=int?[1,2] edge_chance=real[0,1] link_failure=real[0,1] dynamic=bool",
}
SPARSITIES = {name: "rate=real[0,1] evaluation=clean|observed" for name in ("label", "feature", "topology")}
CSBM = (
    "num_nodes=int[30,oo) num_edges=int[0,7140] num_features=int[12,oo) num_classes=int[1,120] homophily=real[0,1] locality=real[0,1] "
    "communities_per_class=int[1,oo) strangers=real[0,1] class_skew=real[0,oo) degree_skew=real[0,3] words_per_node=real?[0,20] "
    "feature_signal=real[0,1] metric=accuracy|auc_ovr|macro_f1|micro_f1"
)
TOP = (
    "num_clients=int[1,120] local_epochs=int[1,1000000] eval_every=int?[1,1000000000] participation=real(0,1] "
    "lr=real(0,oo) weight_decay=real[0,oo) opt_state=persist|reset agg_weight=train|nodes|uniform eval_weight=test|nodes "
    "selection=federation|client average=weighted|macro targets=reals[0,1] "
    "mixing_at=ints[-9223372036854775807,oo) cuda_graphs=bool dtype=float32|float64 threads=int?[1,1024] memory_budget_gb=real?(0,oo) "
    "checkpoint_minutes=real?(0,oo) keep_models=none|final|best seeds_per_chunk=int?[1,oo) shard=auto|seeds|clients overwrite=bool "
    "progress=bool"
)
BATCHES = "batch_nodes=int?[1,oo)"  # a GCN cannot train on batches of nodes, an SGC can

NEEDS = {  # what a method is made for
    **dict.fromkeys(("fedaas", "fedcross", "fedgraph", "graphfed"), "model=gat model.hidden=8 split=iid_server"),
    "fed_pub": "model=gcn_linear model.hidden=8",
    "feddep": "model=graphsage model.hidden=8",
    "fediih": "model=disengcn model.width=8",
    "fedsage_plus": "model=graphsage model.hidden=8",
    "fedssa": "model=unifilter model.hidden=8",
}


@dataclass(frozen=True)
class Key:
    """A key and what it may be.

    Attributes:
        kind: ``int``, ``real``, ``ints``, ``reals``, ``bool`` or ``word``.
        least, most: ends of a number's range; ``open`` those of them that are not allowed themselves.
    """

    name: str
    kind: str
    nullable: bool = False
    least: float = 0
    most: float = float("inf")
    open: str = ""
    words: tuple[str, ...] = ()

    def holds(self, number: float) -> bool:
        """Whether a number lies in the range."""
        low = number > self.least if "(" in self.open else number >= self.least
        return low and (number < self.most if ")" in self.open else number <= self.most)


def keys(text: str, prefix: str = "") -> list[Key]:
    """The keys of a line above."""
    found = []
    for part in text.split():
        name, rule = part.split("=", 1)
        number = re.fullmatch(r"(int|real|ints|reals)(\??)([\[(])(.+),(.+)([\])])", rule)
        if number:
            kind, null, left, least, most, right = number.groups()
            ends = left.replace("[", "") + right.replace("]", "")
            found.append(Key(prefix + name, kind, bool(null), float(least), float(most.replace("oo", "inf")), ends))
        else:
            found.append(Key(prefix + name, "bool" if rule == "bool" else "word", words=() if rule == "bool" else tuple(rule.split("|"))))
    return found


def bases() -> list[tuple[str, list[Key]]]:
    """(arguments of a tiny run, the keys of the choice that it is about) for every choice."""
    tiny = f"{GRAPH} num_clients=3 rounds=2 seeds=[0]"
    small = f"{tiny} model.hidden=8"
    found = [(f"{small} algorithm=fedavg", keys(TOP)), (f"{small} algorithm=fedavg", keys(CSBM, "dataset."))]
    found += [(f"{tiny} algorithm=fedavg model=sgc", keys(BATCHES))]
    found += [(f"{tiny} algorithm={a} {NEEDS.get(a, 'model.hidden=8')}", keys(text, "algorithm.")) for a, text in ALGORITHMS.items()]
    found += [(f"{tiny} algorithm=fedavg model={name}", keys(text, "model.")) for name, text in MODELS.items()]
    found += [(f"{small} algorithm=fedavg optimizer={name}", keys(text, "optimizer.")) for name, text in OPTIMIZERS.items()]
    found += [(f"{small} algorithm=fedavg split={name}", keys(text, "split."))
              for name, text in SPLITS.items()]  # fmt: skip
    methods = {"sync": "fedavg", "semi_async": "fedbuff", "decentralized": "gossip"}
    found += [(f"{small} algorithm={methods[name]} scenario={name}", keys(text, "scenario.")) for name, text in SCENARIOS.items()]
    found += [(f"{small} algorithm=fedavg scenario/sparsity={name}", keys(text, "scenario.sparsity.")) for name, text in SPARSITIES.items()]
    return found
