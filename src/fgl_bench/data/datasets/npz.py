"""Datasets whose raw files are ``.npz`` archives of a graph each: the publishers' own, in PyG's layout where PyG has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fgl_bench.data.checks import check_choice
from fgl_bench.data.datasets.base import Dataset, below, check_owners, side_by_side
from fgl_bench.data.graph import Graph
from fgl_bench.data.npz import read_csr_graph, read_edge_list

CSR = "an npz with adj_* and attr_* (data, indices, indptr, shape of CSR matrices) and labels there"
MADE = f"{CSR}, which docs/data.md makes of the files as published"
SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
PLATONOV = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"


@dataclass
class _OneGraph(Dataset):
    """A graph in one file, one of ``paths`` by the dataset's name: adjacency and 0/1 features as the parts of CSR matrices."""

    paths: ClassVar[dict[str, str]]
    published: ClassVar[str | None] = None

    def files(self, root: Path) -> dict[str, Path]:
        check_choice("dataset.name", self.name, self.paths)
        return below(root, self.paths[self.name])

    def address(self, file: str) -> str | None:
        return self.published and f"{self.published}/{Path(file).name}"

    def read(self, root: Path) -> Graph:
        return self.graph(*read_csr_graph(self.name, *self.raw(root)))


@dataclass
class Amazon(_OneGraph):
    """The graph of PyG's ``Amazon`` (Shchur et al., 2018); ``largest_component`` gives the counts of Shchur et al. and of FedSA-GCL."""

    paths = {name: f"{name.capitalize()}/raw/amazon_electronics_{name}.npz" for name in ("photo", "computers")}
    published = SHCHUR


@dataclass
class Coauthor(_OneGraph):
    """The graph of PyG's ``Coauthor`` (Shchur et al., 2018), with sparse 0/1 features (dense, Physics would take 1.2 GB)."""

    paths = {"cs": "CS/raw/ms_academic_cs.npz", "physics": "Physics/raw/ms_academic_phy.npz"}
    published = SHCHUR


@dataclass
class CitationFull(_OneGraph):
    """The graph of PyG's ``CitationFull`` (Bojchevski and Guennemann, ICLR 2018): features made 0/1, edges made undirected."""

    # PyG's own folder "citeseer" differs from Planetoid's "CiteSeer" only in case, hence one more level.
    paths = {
        "dblp": "dblp/raw/dblp.npz",
        "cora_ml": "cora_ml/raw/cora_ml.npz",
        "citeseer_full": "citeseer_full/citeseer/raw/citeseer.npz",
    }
    published = "https://github.com/abojchevski/graph2gauss/raw/master/data"


@dataclass
class Musae(_OneGraph):
    """One of MUSAE's social networks (Rozemberczki et al., 2021).

    PyG downloads 128-column reductions of these; here the original columns are read, hence no download.
    """

    paths = {name: f"{name}/raw/{name}.npz" for name in ("facebook_page_page", "github_social", "deezer_europe")}
    by_hand = MADE


@dataclass
class Heterophilous(_OneGraph):
    """The graph of PyG's ``HeterophilousGraphDataset`` (Platonov et al., ICLR 2023), or the filtered Chameleon or Squirrel of that paper.

    The ten fixed masks in the file are not used.
    """

    paths = {
        name: f"{name}/raw/{name}.npz"
        for name in (
            "roman_empire", "amazon_ratings", "minesweeper", "tolokers", "questions", "chameleon_filtered", "squirrel_filtered",
        )
    }  # fmt: skip
    published = PLATONOV

    def read(self, root: Path) -> Graph:
        return self.graph(*read_edge_list(self.name, *self.raw(root)))


@dataclass
class CitationDomains(Dataset):
    """Citation networks of several databases in one feature space (Shen et al., AAAI 2020): a natural federation, one client a database.

    The few papers with two labels have the first.

    Attributes:
        databases: some of acmv9, citationv1, dblpv7; their order is the clients' order.
    """

    by_hand = CSR

    databases: list[str]

    def files(self, root: Path) -> dict[str, Path]:
        chosen = check_owners("dataset.databases", self.databases, ("acmv9", "citationv1", "dblpv7"))
        return below(root, *(f"citation_domains/{name}/raw/{name}.npz" for name in chosen))

    def read(self, root: Path) -> Graph:
        return side_by_side(self, [read_csr_graph(self.name, path) for path in self.raw(root)])


@dataclass
class Twitch(Dataset):
    """The Twitch networks of several countries in one feature space (Rozemberczki et al., 2021): a natural federation of countries.

    Attributes:
        countries: some of de, en, es, fr, pt, ru, tw; their order is the clients' order.
    """

    by_hand = MADE

    countries: list[str]

    def files(self, root: Path) -> dict[str, Path]:
        chosen = check_owners("dataset.countries", self.countries, ("de", "en", "es", "fr", "pt", "ru", "tw"))
        return below(root, *(f"twitch_{country}/raw/twitch_{country}.npz" for country in chosen))

    def read(self, root: Path) -> Graph:
        return side_by_side(self, [read_csr_graph(self.name, path) for path in self.raw(root)])


@dataclass
class WebKB(Dataset):
    """The web pages of several universities (Craven et al., 1998) as Platonov et al. publish them: a natural federation.

    Every client is a university. PyG's ``WebKB`` downloads another cornell, whose nodes are those of texas; the ten fixed masks in the
    files are not used.

    Attributes:
        universities: some of cornell, texas, wisconsin; their order is the clients' order.
    """

    universities: list[str]

    def files(self, root: Path) -> dict[str, Path]:
        chosen = check_owners("dataset.universities", self.universities, ("cornell", "texas", "wisconsin"))
        return below(root, *(f"webkb_fixed/{name}/raw/{name}.npz" for name in chosen))

    def address(self, file: str) -> str:
        return f"{PLATONOV}/{Path(file).name}"

    def read(self, root: Path) -> Graph:
        return side_by_side(self, [read_edge_list(self.name, path) for path in self.raw(root)], num_classes=5)
