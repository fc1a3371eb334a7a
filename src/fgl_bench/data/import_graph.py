"""A user's graph from tables of nodes and edges, a networkx or a PyG file, as the arrays that ``dataset=custom`` reads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fgl_bench.data.datasets.custom import part_of
from fgl_bench.data.masks import GIVEN
from fgl_bench.data.own import READERS, arrays_of, plain_labels
from fgl_bench.data.raw import one_line
from fgl_bench.errors import UserError
from fgl_bench.utils.patience import say_once

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LABELS, IDS, OWNERS = ("y", "label", "class", "target"), ("id", "node", "node_id"), ("owner",)
ENDS = (("source", "target"), ("src", "dst"), ("from", "to"))
MOST = 10  # names in a note


def graph(
    nodes: Any,
    edges: Any = None,
    *,
    label: str | None = None,
    id: str | None = None,
    owner: str | None = None,
    drop: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """Return the arrays of a graph, for ``fgl_bench.run(algorithm, graph)`` or ``numpy.savez("graph.npz", **graph)``.

    Args:
        nodes: a table with a row per node: a DataFrame or the path of a file with separated values. Or a whole graph: a networkx graph,
            a PyG ``Data``, a dictionary of arrays, or the path of a ``.graphml``, ``.gml``, ``.json`` (networkx's node-link form), ``.pt``
            or ``.npz`` file. Columns ``train_mask``, ``val_mask`` and ``test_mask`` are masks; all that have no other role are features.
        edges: a table whose columns ``source`` and ``target`` (else the first two) are ids of nodes.
        label: the column of the labels, strings or integers (an empty cell is no label); by default ``y``, ``label``, ``class`` or
            ``target``.
        id: the column of ids; by default ``id``, ``node`` or ``node_id``, else the number of the row from 0.
        owner: the column of the owners, for ``split=natural``; by default ``owner`` if there is one.
        drop: columns that are no features.

    Raises:
        UserError: a column is absent, a feature is no number, an edge names no node, or a file cannot be read.

    Examples:
        >>> import pandas
        >>> people = pandas.DataFrame({"id": ["a", "b", "c"], "age": [30, 41, 52], "kind": ["x", "y", "x"]})
        >>> friends = pandas.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})
        >>> sorted(graph(people, friends, label="kind"))
        ['edge_index', 'x', 'y']
    """
    import pandas as pd

    source = str(nodes) if isinstance(nodes, str | Path) else "graph"
    value = read(Path(os.path.expanduser(nodes))) if isinstance(nodes, str | Path) else nodes
    if "networkx" in sys.modules and isinstance(value, sys.modules["networkx"].Graph):
        attributes = pd.DataFrame.from_dict(dict(value.nodes(data=True)), orient="index")
        if "x" not in attributes:  # one attribute per feature
            edges = pd.DataFrame(list(value.edges()), columns=["source", "target"])
            value, id = attributes.assign(id=list(value.nodes)) if id is None else attributes, id or "id"
    if isinstance(value, pd.DataFrame):
        if edges is None:
            raise UserError(f"{source}: a table of nodes needs one of edges, such as fgl-bench import nodes.csv edges.csv label=COLUMN")
        content = of_tables(value, edges, label, id, owner, list(drop), source)
    elif label or id or owner or drop or edges is not None:
        raise UserError(f"{source}: holds arrays named x, edge_index and y; label=, id=, owner=, drop= and edges are for tables")
    else:
        try:
            content = {key: each if hasattr(each, "to_sparse_coo") else np.asarray(each) for key, each in arrays_of(value).content.items()}
        except (TypeError, ValueError, KeyError, RuntimeError, AttributeError) as error:
            raise UserError(f"{source}: {one_line(error)}") from None
    part_of(content, source)
    return content


def read(path: Path, header: int | None = 0) -> Any:
    """Return a table, a networkx graph or arrays, by the ending of the file; nothing in it is executed."""
    import networkx
    import pandas as pd

    def gml(path: Path) -> Any:
        try:
            return networkx.read_gml(path)
        except networkx.NetworkXError:  # its nodes have no labels
            return networkx.read_gml(path, label=None)

    def node_link(path: Path) -> Any:
        content = json.loads(path.read_text(encoding="utf-8"))
        return networkx.node_link_graph(content, edges="links" if "links" in content else "edges")

    readers = {
        ".graphml": networkx.read_graphml,
        ".gml": gml,
        ".json": node_link,
        **{end: lambda p: READERS[p.suffix](p).content for end in READERS},
    }
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        if path.suffix in readers:
            return readers[path.suffix](path)
        if not path.read_bytes().strip():
            raise ValueError("it is empty")
        return pd.read_csv(path, sep=None, engine="python", header=header, encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not in UTF-8; save it as CSV UTF-8") from None
    except Exception as error:  # parsers of damaged files raise nearly anything
        raise UserError(f"{path}: cannot be read ({one_line(error)})") from None


def of_tables(
    nodes: DataFrame, edges: Any, label: str | None, id: str | None, owner: str | None, drop: list[str], source: str
) -> dict[str, Any]:
    """Return the arrays of two tables; one note says which column has which role."""
    import pandas as pd

    nodes = nodes.rename(columns=str)
    if nodes.empty:
        raise UserError(f"{source}: has no rows")
    roles = {
        "label": column_of(nodes, "label", label, LABELS, source),
        "id": column_of(nodes, "id", id, IDS, source),
        "owner": column_of(nodes, "owner", owner, OWNERS, source),
    }
    if roles["label"] is None:
        raise UserError(f"{source}: which column has the labels? label=COLUMN, one of {', '.join(nodes.columns)}")
    absent = [name for name in drop if name not in nodes]
    if absent:
        raise UserError(f"drop={absent[0]}: {source} has no such column; it has {', '.join(nodes.columns)}")
    where, table = edge_table(edges)
    if table.empty:
        raise UserError(f"{where}: has no rows")
    named, rows = {*table.stack().astype(str)}, pd.Series(range(len(nodes)))
    if roles["id"] is None and not named <= {*rows.astype(str)}:
        most, name = max((len(named & {*nodes[name].astype(str)}), str(name)) for name in nodes)  # what most ends are
        roles["id"] = name if most else None
    ids = nodes[roles["id"]] if roles["id"] else rows
    if {*map(str, table.columns)} <= {*ids.astype(str)} and isinstance(edges, str | Path):  # ids in the place of a heading
        table = edge_table(edges, header=None)[1]
    features = [str(name) for name in nodes if name not in (*roles.values(), *GIVEN, *drop)]
    content: dict[str, Any] = {"edge_index": ends(table, ids, where, source), "x": numbers(nodes, features, source)}
    values = nodes[roles["label"]]
    content["y"] = plain_labels(values.astype(object).where(values.notna(), None).to_numpy())
    if roles["id"]:
        content["id"] = ids.astype(str).to_numpy(dtype=str)
    if roles["owner"]:
        content["owner"] = np.asarray(nodes[roles["owner"]].tolist())
    content |= {name: nodes[name].to_numpy() for name in GIVEN if name in nodes}
    shown = ", ".join(features[:MOST]) + f" and {len(features) - MOST} more" * (len(features) > MOST)
    roles_text = [f"{role}={name or 'number of the row'}" for role, name in roles.items() if name or role == "id"]
    say_once(f"note: {source}: {', '.join(roles_text)}; features: {shown}")
    return content


def column_of(nodes: DataFrame, role: str, given: str | None, usual: Sequence[str], source: str) -> str | None:
    """Return the column of a role: as given, else a usual one; raises UserError if the given one is absent."""
    if given is not None and given not in nodes:
        raise UserError(f"{role}={given}: {source} has no such column; it has {', '.join(nodes.columns)}")
    return given or next((name for name in nodes.columns if name.lower() in usual), None)


def numbers(nodes: DataFrame, names: Sequence[str], source: str) -> np.ndarray:
    """Return the features ``[N, F]``; raises UserError for text, empty cells and a table without features."""
    import pandas as pd

    if not names:
        raise UserError(f"{source}: no column is left for features")
    text = [name for name in names if nodes[name].dtype.kind not in "biuf"]
    if text:
        wrong = nodes[text[0]][pd.to_numeric(nodes[text[0]], errors="coerce").isna() & nodes[text[0]].notna()]
        what = f"{source}: no numbers in {', '.join(text)}, such as {str(wrong.iloc[0])[:40]!r} in row {int(wrong.index[0]) + 1}"
        raise UserError(f"{what}; leave them out by drop={','.join(text)}, or make columns of numbers of them (pandas.get_dummies)")
    empty = [name for name in names if nodes[name].isna().any()]
    if empty:
        count = int(nodes[empty[0]].isna().sum())
        raise UserError(f"{source}: {empty[0]} is empty for {count} node(s); fill it, or leave it out by drop={','.join(empty)}")
    values = nodes[list(names)].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise UserError(f"{source}: {names[int((~np.isfinite(values)).any(0).argmax())]} has an infinite value")
    return values.astype(np.float32)


def edge_table(edges: Any, header: int | None = 0) -> tuple[str, DataFrame]:
    """Return the name of the table for messages, and its columns of ends."""
    import pandas as pd

    where = str(edges) if isinstance(edges, str | Path) else "edges"
    table = read(Path(os.path.expanduser(edges)), header) if isinstance(edges, str | Path) else edges
    if not isinstance(table, pd.DataFrame) or table.shape[1] < 2:
        raise UserError(f"{where}: must be a table with a column for either end of an edge")
    return where, table[next((list(pair) for pair in ENDS if {*pair} <= {*table.columns}), [*table.columns[:2]])]


def ends(table: DataFrame, ids: Series, where: str, source: str) -> np.ndarray:
    """Return ``[2, E]`` numbers of nodes; raises UserError for an edge that names no node."""
    import pandas as pd

    place = pd.Series(range(len(ids)), index=ids.astype(str).to_numpy())
    if not place.index.is_unique:
        raise UserError(f"{source}: two nodes have the id {place.index[place.index.duplicated()][0]}")
    names = table.astype(str)
    unknown = names.stack()[lambda each: ~each.isin(place.index)]
    if len(unknown):
        what = f"{where}: {unknown.iloc[0][:40]!r} in column {unknown.index[0][1]} is no node of {source}"
        raise UserError(f"{what}, whose ids are such as {str(ids.iloc[0])[:40]}; id=COLUMN names their column")
    return np.stack([place[names[name]].to_numpy() for name in names])
