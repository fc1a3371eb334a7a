"""``fgl-bench import FOLDER``: take the stored cells of another machine into ``results``.

A folder has what ``results`` has: ``cells/<paper>/`` and ``leaderboard/``, and nothing in them is executed. A cell is refused unless it
is what its command makes with this version of committed code. Cells that are stored already stay as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

from omegaconf import OmegaConf

from fgl_bench.config.compose import Composer
from fgl_bench.config.settings import resolve_budget
from fgl_bench.errors import UserError, printable
from fgl_bench.leaderboard.checks import flaws
from fgl_bench.leaderboard.predictions import read_predictions
from fgl_bench.leaderboard.protocol import FILES, read_protocol
from fgl_bench.leaderboard.record import Record, path_of, read_record, write_record
from fgl_bench.papers.plan import fill, load_paper, papers, plan
from fgl_bench.results.cells import PICTURES, read_cells, write_cells
from fgl_bench.results.provenance import versions
from fgl_bench.results.question import read_words, short
from fgl_bench.results.shapes import curve_flaw
from fgl_bench.results.store import READABLE, SCHEMA_VERSION, Untrusted, checked, identity
from fgl_bench.utils.files import home, write_bytes

FOLDERS = "fgl-bench import FOLDER [into=results]"
USAGE = "fgl-bench import NODES.csv EDGES.csv [label=COLUMN] [id=COLUMN] [owner=COLUMN] [drop=COLUMN,...] [out=graph.npz]"
DAMAGED = (UserError, OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile)  # raised by files of another form
SAME_SCORES = ("1.0.0",)  # earlier versions that give the scores of this one


class Outcome(NamedTuple):
    """A cell that was read.

    Attributes:
        stored: True if the cell was stored before.
        refused: the reason; empty for an accepted cell.
    """

    name: str
    stored: bool = False
    refused: str = ""


def run(arguments: Sequence[str]) -> None:
    """Import a graph, or a folder of cells; exit status 1 if a cell was refused.

    Raises:
        UserError: an argument is wrong, or there is nothing to import.
    """
    if any(Path(text).suffix and not home("FOLDER", text).is_dir() for text in arguments if "=" not in text):
        import_graph(arguments)
        return
    words, rest = read_words(arguments, ("into",), FOLDERS)
    if len(rest) != 1:
        raise UserError(f"{short(' '.join(rest) or 'import what')}: give one folder of cells, {FOLDERS}; or a graph, {USAGE}")
    source, into = home("FOLDER", rest[0]), home("into", words.get("into", ["results"])[0])
    for folder in (source, into):
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder; {FOLDERS}")
    outcomes = [*import_papers(source, into), *import_leaderboard(source, into)]
    if not outcomes:
        raise UserError(f"{source}: has no cells in cells/ or leaderboard/; make gpu makes such a folder")
    refused = [outcome for outcome in outcomes if outcome.refused]
    for outcome in refused:
        print(printable(f"refused: {outcome.name}: {' '.join(outcome.refused.split())[:200]}"))
    stored = sum(outcome.stored for outcome in outcomes)
    new = len(outcomes) - stored - len(refused)
    print(f"{new} cell(s) imported into {into}, {stored} stored already, {len(refused)} refused")
    if new:
        print("make reproduce-tables ARGS=--tables-only and make numbers write the tables with them")
    if refused:
        sys.exit(1)


def import_graph(arguments: Sequence[str]) -> None:
    """Write a user's graph as the file that ``dataset=custom`` reads.

    Raises:
        UserError: an argument is wrong, or the graph cannot be read.
    """
    words, rest = read_words(arguments, ("label", "id", "owner", "drop", "out"), USAGE)
    if len(rest) not in (1, 2):
        raise UserError(f"{short(' '.join(rest))}: give a table of nodes and one of edges, or one file of a graph; {USAGE}")
    from fgl_bench.data.import_graph import graph
    from fgl_bench.data.own import pack

    given: dict[str, Any] = {key: values[0] for key, values in words.items()}
    out = home("out", given.pop("out", Path(rest[0]).with_suffix(".npz").name))
    if out.suffix != ".npz":
        raise UserError(f"out={short(str(out))}: must end in .npz")
    if out.exists() and out.samefile(rest[0]):
        raise UserError(f"{out}: is such a file already; write dataset=custom dataset.path={out}")
    content = graph(*rest, **given | ({"drop": given["drop"].split(",")} if "drop" in given else {}))
    try:
        write_bytes(out, pack(content))
    except OSError as error:
        raise UserError(f"out={short(str(out))}: cannot be written ({error.strerror})") from error
    owners = " split=natural" if "owner" in content else ""
    masks = " split.masks=given split.ratios=null" if "train_mask" in content else ""
    print(f"written: {out}: {len(content['y'])} nodes, {content['edge_index'].shape[1]} edges\nrun it:")
    print(f"  fgl-bench dataset=custom dataset.path={out} dataset.name={out.stem}{owners}{masks} algorithm=fedavg")


def import_papers(source: Path, into: Path) -> Iterator[Outcome]:
    """Import ``cells/<paper>/``; yields the outcome for every cell."""
    composer, known = Composer(), papers()
    for folder in sorted((source / "cells").glob("*/")):
        if folder.name not in known:
            yield Outcome(f"cells/{folder.name}", refused=f"no such paper; known: {', '.join(known)}")
            continue
        try:
            given = read_cells(folder)
        except DAMAGED as error:
            yield Outcome(f"cells/{folder.name}", refused=f"no stored cells ({type(error).__name__}: {error})")
            continue
        mine = read_cells(into / "cells" / folder.name)
        planned, hashes, new = plan(load_paper(folder.name).tables), {cell["config_hash"] for cell in mine}, []
        for cell in given:
            name = f"{folder.name} {cell['config_hash']}"
            if cell["config_hash"] in hashes:
                yield Outcome(name, stored=True)
                continue
            places = []
            try:
                places = [place for place in cell["places"] if fill(planned, [{"places": [place]}])]
                refused = flaw_of(cell, places, composer)
            except (*DAMAGED, Untrusted) as error:
                refused = str(error)
            yield Outcome(f"{name} (table {', '.join(places[0][:3])})" if places else name, refused=refused)
            new += [] if refused else [{**cell, "places": places}]
        if new:
            filled = {place for cell in new for place in cell["places"]}
            others = [{**cell, "places": [place for place in cell["places"] if place not in filled]} for cell in mine]
            write_cells(into / "cells" / folder.name, [*(cell for cell in others if cell["places"]), *new])


def flaw_of(cell: Mapping[str, Any], places: Sequence[Any], composer: Composer) -> str:
    """Return why a cell of a paper is refused; empty if it is accepted.

    Args:
        places: the table cells that the paper's plan fills with it.

    Raises:
        Untrusted: the cell is damaged or does not have the hash of its configuration.
    """
    summary = {key: value for key, value in cell.items() if key not in ("places", *PICTURES)}
    if summary["schema_version"] in READABLE:  # the hash of a stored cell is this version's, also of an older run
        summary["schema_version"] = SCHEMA_VERSION
    checked(json.dumps(summary))
    if "curve" in cell and (wrong := curve_flaw(cell["curve"])):
        return wrong
    if wrong := origin_flaw(cell["versions"], (cell.get("code") or {}).get("commit"), (cell.get("code") or {}).get("dirty")):
        return wrong
    if not places:
        return "it fills no cell of a table: none is planned with its overrides"
    cfg = composer(places[0][3])
    now = identity(OmegaConf.to_container(cfg, resolve=True), *resolve_budget(cfg))  # type: ignore[arg-type]
    then = {key: value for key, value in cell["config"].items() if key != "data"}  # checksums of raw files
    changed = [key for key in {**now, **then} if now.get(key) != then.get(key)]
    return f"its command makes another configuration now: {', '.join(changed)}" if changed else ""


def origin_flaw(made_by: Mapping[str, str], commit: str | None, dirty: bool | None) -> str:
    """Return why the code that made a cell is not accepted; empty if it is."""
    here = versions().get("fgl-bench")
    if made_by.get("fgl-bench") not in (here, *SAME_SCORES):
        return f"made by fgl-bench {made_by.get('fgl-bench')}, this is {here}"
    return "made by code that was not committed" if not commit or dirty else ""


def import_leaderboard(source: Path, into: Path) -> Iterator[Outcome]:
    """Import ``leaderboard/``; yields the outcome for every cell."""
    protocols = {protocol.folder: protocol for protocol in map(read_protocol, FILES.values())}
    for path in sorted(path for folder in protocols for path in (source / "leaderboard" / folder).glob("[!.]*/*.json")):
        protocol, folder = protocols[path.parts[-3]], into / "leaderboard" / path.parts[-3]
        entries = {entry.name: entry for entry in protocol.entries}
        name = f"leaderboard/{path.parent.name}/{path.stem}"
        try:
            record = read_record(path)
            if record.entry not in entries:
                raise ValueError(f"{short(record.entry)} is not in the leaderboard")
            wrong = next(flaws(protocol, entries[record.entry], [record]), "")
            wrong = wrong or origin_flaw(record.facts.get("versions", {}), record.facts.get("commit"), False)
            predictions, winner = path.with_suffix(".npz"), record.tuned
            content = None
            if not wrong and winner is not None and predictions.is_file():
                content = read_predictions(predictions, winner.scores[winner.model], record.facts["metric"])
        except DAMAGED as error:
            yield Outcome(name, refused=f"{type(error).__name__}: {error}")
            continue
        stored = not wrong and complete_here(path_of(folder, record.entry, record.column), record)
        yield Outcome(name, stored, wrong)
        if not wrong and not stored:
            write_record(folder, record)
            if content is not None:
                write_bytes(path_of(folder, record.entry, record.column).with_suffix(".npz"), content)


def complete_here(path: Path, record: Record) -> bool:
    """Return True if a complete cell of the same protocol is stored."""
    try:
        mine = read_record(path)
    except (OSError, ValueError):
        return False
    return mine.complete and mine.protocol == record.protocol
