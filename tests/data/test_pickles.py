"""Damaged and malicious pickles: one clear line or a plain numeric array, never anything else."""

from __future__ import annotations

import io
import pickle
import struct
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fgl_bench.data.datasets.planetoid import PARTS, read_pickle
from fgl_bench.errors import UserError
from tests.data.graphs import configured

RECONSTRUCT = np._core.multiarray._reconstruct


class Reduced:
    """Pickled as the call ``function(*arguments)`` and a state for what comes of it."""

    def __init__(self, function, arguments, state):
        self.told = function, arguments, state

    def __reduce__(self):
        return self.told


class PickledByPython2(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, as in the published files."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, content):
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)

    dispatch[bytes] = save_string


def as_python_2(content):
    out = io.BytesIO()
    PickledByPython2(out, 2).dump(content)
    return out.getvalue()


WRITERS = {"python 2": as_python_2, "python 3": lambda content: pickle.dumps(content, 4)}


def dtype(name, state=(3, "<", None, None, None, -1, -1, 0)):
    return Reduced(np.dtype, (name, False, True), state)


def array(kind, content, shape=(2, 1)):
    return Reduced(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, shape, kind, False, content))


def read(folder, content, kind=np.ndarray):
    path = folder / "part"
    path.write_bytes(content)
    return read_pickle("toy", path, kind)


POINTERS = struct.pack("<2Q", 0x41414141, 0x42424242)
OBJECT = (3, "|", None, None, None, 8, 8, 0)  # 63 would be the flags of object pointers
FORGED = {
    "pointers": array(dtype("O8", OBJECT), POINTERS),
    "pointers, flags cleared twice": array(Reduced(np.dtype, (dtype("O8", OBJECT), False, True), OBJECT), POINTERS),
    "a list of objects": array(dtype("O8", (3, "|", None, None, None, -1, -1, 63)), [object, object]),
    "records of pointers": array(dtype("V8", (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0)), POINTERS),
    "records of pointers as numbers": array(dtype("V8", (3, "|", (np.dtype("O"), (1,)), None, None, 8, 1, 0)), POINTERS),
    "strings": array(dtype("S8"), POINTERS),
    "dates": array(dtype("M8"), POINTERS),
    "too few bytes": array(dtype("i8"), POINTERS[:9]),
    "too large a shape": array(dtype("i8"), POINTERS, (2**40, 2**40)),
    "a negative shape": array(dtype("i8"), POINTERS, (-2, -1)),
    "a size of None": array(dtype("i8"), POINTERS, (None,)),
    "no state": Reduced(RECONSTRUCT, (np.ndarray, (0,), b"b"), None),
    "no type": array(None, POINTERS),
    "another byte order": array(dtype("i8", (3, "spam", None, None, None, -1, -1, 0)), POINTERS),
    "a type alone": np.dtype("f4"),
    "a list": [[1.0, 2.0]],
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("writer", WRITERS)
def test_only_plain_numeric_arrays_are_handed_out(name, writer, tmp_path):
    with pytest.raises(UserError, match="dataset=toy: .*part is corrupt or truncated") as caught:
        read(tmp_path, WRITERS[writer](FORGED[name]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("writer", WRITERS)
def test_the_state_of_a_type_changes_nothing_but_its_byte_order(writer, tmp_path):
    # Numbers that claim the flags, the size and the parts of object pointers stay numbers.
    claimed = dtype("u8", (3, ">", (np.dtype("f8"), (1,)), ("a",), {"a": (np.dtype("f8"), 0)}, 8, 8, 63))
    found = read(tmp_path, WRITERS[writer](array(claimed, POINTERS[::-1])))
    assert found.dtype == np.uint64 and not found.dtype.hasobject and found.tolist() == [[0x42424242], [0x41414141]]


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of two thousand million entries
        b"\x80\x05\x96" + struct.pack("<Q", 2**36) + b".",  # a bytearray of 64 GB
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b".",  # a frame
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",  # bytes
        b"\x80\x02cnumpy\ndtype\n}b.",  # a state for a class
        b"\x80\x02ccollections\ndefaultdict\n(N}X\x01\x00\x00\x00aNs\x86b.",
        b"(" * 2000 + b"t" * 2000 + b".",
        b"",
    ],
)
def test_what_would_take_memory_or_change_a_class_is_refused(content, tmp_path):
    with pytest.raises(UserError, match="is corrupt or truncated"):
        read(tmp_path, content)


VALID = {
    np.ndarray: np.arange(6, dtype=np.float32).reshape(3, 2),
    sp.csr_matrix: sp.csr_matrix(np.diag([1.0, 2.0, 3.0]).astype(np.float32)),
    dict: defaultdict(list, {0: [1, 2], 1: [0], 2: [0]}),
}


@pytest.mark.parametrize("kind", VALID)
@pytest.mark.parametrize("writer", WRITERS)
def test_sound_pickles_are_read(kind, writer, tmp_path):
    found, whole = read(tmp_path, WRITERS[writer](VALID[kind]), kind), VALID[kind]
    if kind is dict:
        assert found == whole
    else:
        assert found.dtype == whole.dtype and np.array_equal(*(sp.csr_matrix(x).toarray() for x in (found, whole)))


@pytest.mark.parametrize("kind", VALID)
@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), flips=st.integers(1, 6), writer=st.sampled_from([*WRITERS]))
def test_flipped_bytes_give_one_line_or_numbers(kind, seed, flips, writer, tmp_path_factory):
    rng = np.random.default_rng(seed)
    content = np.frombuffer(WRITERS[writer](VALID[kind]), np.uint8).copy()
    content[rng.integers(content.size, size=flips)] = rng.integers(256, size=flips)
    try:
        found = read(tmp_path_factory.getbasetemp(), content.tobytes(), kind)
    except UserError as error:
        assert "\n" not in str(error)
        return
    if kind is dict:
        assert all(type(end) is int for ends in found.values() for end in ends)
    else:
        values = found if kind is np.ndarray else found.data
        assert isinstance(found, kind) and values.dtype.kind in "biuf" and not values.dtype.hasobject
        with np.errstate(invalid="ignore"):  # of a signalling NaN
            assert np.isfinite(values.astype(np.float64).sum()) in (True, False), "every number can be read"


# ---- Planetoid's files


def write_planetoid(folder, **changes):
    """Cora's layout with six nodes, of which the last two are test nodes."""
    words = sp.csr_matrix(np.eye(6, dtype=np.float32))
    classes = np.eye(2, dtype=np.int32)[[0, 1, 0, 1, 0, 1]]
    links = defaultdict(list, {node: [(node + 1) % 6] for node in range(6)})
    parts = {"x": words[:2], "tx": words[4:], "allx": words[:4], "y": classes[:2], "ty": classes[4:], "ally": classes[:4], "graph": links}
    raw = folder / "Cora" / "raw"
    raw.mkdir(parents=True)
    for part, content in {**parts, **{key: value for key, value in changes.items() if key != "test"}}.items():
        (raw / f"ind.cora.{part}").write_bytes(as_python_2(content))
    (raw / "ind.cora.test.index").write_text("\n".join(map(str, changes.get("test", [5, 4]))))
    assert len(list(raw.iterdir())) == len(PARTS)
    return str(folder)


def test_a_small_planetoid_graph_is_read(tmp_path):
    graph = configured("dataset", "cora").load(write_planetoid(tmp_path))
    assert graph.edges.shape == (2, 12) and graph.labels.tolist() == [0, 1, 0, 1, 1, 0]  # 5 before 4 in test.index
    assert graph.features.toarray()[4].tolist() == [0, 0, 0, 0, 0, 1]
