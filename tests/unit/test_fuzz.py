"""Configurations and files near valid ones give an error line or a result within a short time.

Hypothesis generates them: the same few of each kind in every run of the tests, and more with `-m real`.
"""

import copy
import datetime
import io
import json
import lzma
import resource
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from shapeline.config import validation
from shapeline.datasets import checks, images, malaria, mnist, preparation, text_sources
from shapeline.errors import MethodFailure, ShapelineError
from shapeline.games.features import Features
from shapeline.methods import external

SECONDS, MEMORY = 5.0, 1_000_000  # of one case, kilobytes that a test may add
MORE = 20  # times as many cases with -m real


def cases(count: int, strategy: st.SearchStrategy):
    """Run a test on so many cases by default, always the same, and as `test[real]` on MORE times as many new ones."""

    def decorate(test: Callable) -> Callable:
        usual = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
        few = settings(max_examples=count, derandomize=True, phases=[Phase.generate], **usual)
        many = settings(max_examples=MORE * count, phases=[Phase.generate, Phase.shrink], **usual)

        @pytest.mark.parametrize("chosen", [pytest.param(few, id="few"), pytest.param(many, marks=pytest.mark.real)])
        def run(chosen):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            chosen(given(strategy)(lambda case: test(case)))()
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def bounded(call: Callable, lines: int = 1) -> None:
    """The call returns or reports the problem in a few short lines, within seconds."""
    began = time.process_time()
    try:
        call()
    except ShapelineError as error:
        said = str(error)
        assert said.strip() and said.count("\n") < lines and max(map(len, said.split("\n"))) < 4000, said
    assert time.process_time() - began < SECONDS


# --- the configuration --------------------------------------------------------------------------------------------

BASE = {
    "run": ["a"],
    "datasets": {
        "d": {"source": "digits", "classes": [3, 8], "validation": 0.2},
        "t": {"source": "breast_cancer", "test": 0.3},
        "w": {"source": "reviews", "length": 12, "vocabulary": 300},
        "f": {
            "source": "table_file",
            "path": "examples/own/loans.csv",
            "target": "granted",
            "columns": ["age", "debt"],
        },
        "p": {"source": "image_folder", "path": "docs/images", "size": [16, 16], "limits": {"member": 5}},
    },
    "models": {
        "m": {"dataset": "d", "architecture": "digits_cnn", "training": {"epochs": 2, "learning_rate": 0.01}},
        "n": {"dataset": "t", "architecture": "mlp", "sizes": {"hidden": [8]}},
        "o": {"dataset": "w", "architecture": "word_cnn"},
        "q": {"dataset": "f", "source": "examples/own/rule.py:granted", "framework": "function"},
        "r": {"dataset": "p", "architecture": "resnet18", "weights": "imagenet"},
    },
    "experiments": {
        "a": {
            "model": "m",
            "features": {"kind": "patch", "size": 2},
            "reference": {"kind": "background", "rows": 4},
            "instances": {"count": 8, "label": "3", "correct": True},
            "methods": {
                "exact": {"method": "shapley"},
                "k": {"method": "kernel_shap", "budget": 8, "intermediate_budgets": [4, 6.0]},
                "c": {"method": "c_shapley", "order": 2},
                "s": {"method": "sample_shapley", "match_budget_of": "c"},
                "h": {"method": "h_shap", "shifts": [[0, 0], [1, 1]]},
            },
            "metrics": {"log_odds": {}, "error": {"reference": "exact"}, "cost": {}, "ablation": {"sizes": 5}},
            "shards": "auto",
        },
        "b": {
            "model": "n",
            "features": {"kind": "group"},
            "methods": {"l": {"method": "lime", "n_features": 3}, "q": {"method": "qii", "permutations": 50}},
            "metrics": {"randomisation": {"layers": ["full"]}, "sensitivity": {}},
            "time_limit": 3.0,
            "training_seeds": 2,
        },
        "e": {
            "model": "o",
            "features": {"kind": "word"},
            "reference": "pad",
            "instances": {"texts": ["a warm film", "dull"]},
            "methods": {"l": {"method": "l_shapley", "samples": 5}, "i": {"method": "integrated_gradients"}},
            "metrics": {"cost": {}},
        },
        "g": {
            "model": "q",
            "features": {"kind": "column"},
            "value": "probability",
            "methods": {
                "own": {"method": "examples/own/halves.py:halves"},
                "x": {"method": "external", "path": "a.csv"},
            },
            "metrics": {"cost": {}},
        },
        "i": {
            "model": "r",
            "features": {"kind": "superpixel", "segments": 20},
            "methods": {"p": {"method": "partition", "evaluations": 30}, "g": {"method": "grad_cam"}},
            "metrics": {"cost": {}},
        },
    },
    "results": "results",
    "seed": 1,
    "data": {"offline": True, "mirror": "examples"},
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**63, 2**64, 10**30, -(2**63), 10**9, 65536, 1 << 5000]),
    st.floats(),
    st.sampled_from([1e308, 1e-308, 5e-324, 0.5, 1e9, -0.0]),
    st.text(max_size=12),
    st.sampled_from(
        ["", ".", "..", "/", "~", "~nobody/x", "$HOME", "${X", "a" * 300, "a\0", "\ud800", "x.py:f", ".skops"]
    ),
    st.sampled_from(
        ["digits", "reviews", "mnist", "auto", "mean", "pad", "word", "shapley", "kernel_shap", "4", "1e9"]
    ),
    st.lists(st.integers(-1, 9), max_size=3),
    st.lists(st.text(max_size=4), max_size=3),
    st.dictionaries(st.text(max_size=6), st.integers(), max_size=2),
    st.sampled_from([{1: 2}, {None: 1}, {(): 3}, [[]], [[[0]]], {"kind": "pixel"}, {"kind": None}, {"method": []}]),
    st.just(datetime.date(2020, 1, 1)),
    st.binary(max_size=4),
)
EDIT = st.tuples(
    st.integers(0, 10**6),
    st.sampled_from(["set", "set", "set", "drop", "rename", "add", "graft", "wrap"]),
    ODD,
    st.text(max_size=9),
)


def places(tree: object, path: tuple = ()) -> list[tuple]:
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in inside for place in places(value, (*path, key)))]


def at(tree: object, path: tuple) -> object:
    for key in path:
        tree = tree[key]
    return tree


KNOWN = sorted(
    {str(place[-1]) for place in places(BASE)[1:]} | {"batch", "epochs", "tokenizer", "trim", "objects", "task"}
)


def edited(tree: dict, edits: list[tuple]) -> dict:
    """The tree with changes at places that numbers choose."""
    tree = copy.deepcopy(tree)
    for number, what, value, name in edits:
        known, value = places(tree)[1:], copy.deepcopy(value)  # for a later change may be inside it
        if not known:
            break
        path = known[number % len(known)]
        parent, key = at(tree, path[:-1]), path[-1]
        if what == "set" or (what in ("rename", "add") and not isinstance(parent, dict)):
            parent[key] = value
        elif what == "drop":
            del parent[key]
        elif what == "rename":
            parent[KNOWN[number % len(KNOWN)] if number % 2 else name] = parent.pop(key)
        elif what == "add":
            parent[KNOWN[number % len(KNOWN)]] = value
        elif what == "graft":
            parent[key] = copy.deepcopy(at(tree, known[(number * 31 + 7) % len(known)]))
        else:
            parent[key] = [parent[key]] if number % 2 else {"kind": parent[key]}
    return tree


@cases(250, st.lists(EDIT, min_size=1, max_size=4))
def test_a_configuration_near_a_valid_one(edits):
    raw = edited(BASE, edits)
    before = repr(raw)
    bounded(lambda: validation.load(raw), lines=60)
    assert repr(raw) == before


@cases(
    60, st.recursive(ODD, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KNOWN), inner))
)
def test_a_configuration_of_anything(tree):
    bounded(lambda: validation.load({**BASE, "experiments": tree}), lines=60)
    bounded(lambda: validation.load(tree), lines=60)


# --- tables and texts ---------------------------------------------------------------------------------------------

TABLE = b"id,age,town,y\n" + b"".join(
    b"%d,%d.5,t%d,%s\n" % (i, 20 + i, i % 3, b"yes" if i % 2 else b"no") for i in range(24)
)
TEXTS = b"said,stars\n" + b'"good, warm food",1\n"bad ""cold"" room",0\n' * 12
PIECES = [
    b'"',
    b",",
    b";",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"\0",
    b"\xff",
    b"\xe9",
    b"\xef\xbb\xbf",
    b"nan",
    b"inf",
    b"1e999",
    b"?",
    b"",
]
SPLICE = st.tuples(st.integers(0, 10**6), st.integers(0, 40), st.sampled_from(PIECES) | st.binary(max_size=6))


def spliced(content: bytes, splices: list[tuple]) -> bytes:
    """The content with bytes taken out and others put in at places that numbers choose."""
    for number, length, piece in splices:
        start = number % (len(content) + 1)
        content = content[:start] + piece + content[start + length % 7 * (number % 3) :]
    return content


FORM = st.fixed_dictionaries(
    {},
    optional={
        "separator": st.sampled_from([",", ";", "tab", "spaces", " ", "|", "", "::"]),
        "header": st.booleans() | st.integers(-1, 5) | st.lists(st.text(max_size=4), max_size=5),
        "na_values": st.lists(st.text(max_size=4) | st.integers() | st.floats(), max_size=3),
        "encoding": st.sampled_from(["utf-8", "cp1252", "utf-16", "utf-7", "ascii", "hex", "cp037", "x", "gb18030"]),
        "trim": st.booleans(),
        "task": st.sampled_from(["regression", "classification"]),
        "columns": st.lists(st.sampled_from(["age", "town", "id", "0", "1"]), min_size=1, max_size=3),
        "categorical": st.lists(st.sampled_from(["age", "town"]), min_size=1, max_size=2),
    },
)


@cases(150, st.tuples(st.lists(SPLICE, max_size=5), FORM, st.sampled_from(["y", "town", "age", "0", ""])))
def test_a_table_near_a_valid_one(case):
    splices, form, target = case
    prepared("table_file", "own.csv", spliced(TABLE, splices), {**form, "target": target})


@cases(80, st.tuples(st.lists(SPLICE, max_size=5), FORM))
def test_documents_near_valid_ones(case):
    splices, form = case
    form = {key: form[key] for key in form if key not in ("task", "columns", "categorical")}
    prepared("text_file", "own.csv", spliced(TEXTS, splices), {**form, "text": "said", "target": "stars"})


def prepared(source: str, name: str, content: bytes, entry: dict) -> None:
    """Return the configuration's view of a file, and the result of the job."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(content)
        entry = {"source": source, "path": str(file), **entry}
        bounded(lambda: checks.read_entry(source, entry))
        bounded(lambda: preparation.prepare(source, entry, [], Path(folder, "made")))


SCORES = b"instance,target,a,b,seconds,evaluations\n" + b"".join(b"%d,1,0.5,-0.25,0.01,9\n" % i for i in range(6))


@cases(80, st.lists(SPLICE, max_size=4))
def test_scores_near_valid_ones(splices):
    own = Features("column", (2,), np.arange(2, dtype=np.int32), ("a", "b"))

    def read() -> None:
        try:
            external.read(np.ones(3, int), range(3), own, str(file))
        except MethodFailure as failure:
            assert failure.status

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scores.csv")
        file.write_bytes(spliced(SCORES, splices))
        external._read_table.cache_clear()
        bounded(read)


COMPAS = (
    b"id,sex,age,race,juv_fel_count,juv_misd_count,juv_other_count,priors_count,days_b_screening_arrest,"
    b"c_charge_degree,is_recid,decile_score,score_text,v_score_text\n"
    + b"1,Male,30,Other,0,0,0,2,-1,F,0,5,Medium,Low\n"
    * 9
)
IDX = (0x803).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (2, 28, 28)) + bytes(2 * 28 * 28)


@cases(60, st.lists(SPLICE, max_size=4))
def test_official_files_near_valid_ones(splices):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "compas.csv")
        file.write_bytes(spliced(COMPAS, splices))
        bounded(lambda: text_sources.read_compas({"compas": file}))
        file.write_bytes(spliced(IDX, splices))
        bounded(lambda: mnist.read_idx(file, mnist.IMAGES))


# --- archives and images ----------------------------------------------------------------------------------------


def image(number: int, kind: str = "PNG", **more: object) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (9, 8, 3), np.uint8)
    Image.fromarray(pixels).save(stream, kind, **more)
    return stream.getvalue()


MEMBERS = {
    f"pets/{name}/{i}.{'png' if i % 2 else 'jpg'}": image(i, "PNG" if i % 2 else "JPEG")
    for name in "ab"
    for i in range(6)
}


def packed(kind: str, members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as stored:
            for name, content in members.items():
                stored.writestr(name, content)
        return stream.getvalue()
    form = tarfile.PAX_FORMAT if kind == "pax" else tarfile.GNU_FORMAT
    with tarfile.open(fileobj=stream, mode="w:gz" if kind == "gz" else "w", format=form) as stored:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if kind == "pax":
                member.pax_headers = {"comment": "\u00e9", "mtime": "1.5"}
            stored.addfile(member, io.BytesIO(content))
    return lzma.compress(stream.getvalue()) if kind == "xz" else stream.getvalue()


KINDS = ("zip", "tar", "pax", "gz", "xz")
ARCHIVES = {kind: packed(kind, MEMBERS) for kind in KINDS}
CUT = st.tuples(st.integers(0, 10**6), st.integers(0, 600), st.binary(max_size=5))
LIMIT = st.sampled_from([None, {"member": 0.0001}, {"total": 0.001}, {"pixels": 0.00001}, {}])


def pieces(content: bytes, cuts: list[tuple]) -> bytes:
    """Bytes replaced, taken out or repeated at places that numbers choose, more often where headers are."""
    for number, length, piece in cuts:
        start = (
            number % len(content) if content and number % 3 else len(content) - 1 - number % min(len(content) or 1, 900)
        )
        start = max(start, 0)
        if number % 5 < 3:
            content = content[:start] + piece + content[start + len(piece) :]
        else:
            content = (
                content[:start]
                + (content[start : start + length] * 2 if number % 2 else b"")
                + content[start + length :]
            )
    return content


@cases(150, st.tuples(st.sampled_from(KINDS), st.lists(CUT, max_size=4), LIMIT, st.sampled_from(["stop", "skip"])))
def test_an_archive_near_a_valid_one(case):
    kind, cuts, limits, on_decode_error = case
    entry = {"size": [4, 4], "on_decode_error": on_decode_error} | ({"limits": limits} if limits else {})
    prepared("image_folder", "pets.zip", pieces(ARCHIVES[kind], cuts), entry)


NAMES = st.sampled_from(
    ["", "/", "..", "a/../../b", "train/a/x.png", "a/x.PNG", "\u00e9/\ud800.png", "a" * 300, "a//b.jpg", "__MACOSX/x"]
)


@cases(
    60,
    st.tuples(
        st.sampled_from(KINDS[:4]), st.lists(st.tuples(NAMES | st.text(max_size=8), st.integers(0, 12)), max_size=5)
    ),
)
def test_an_archive_with_other_members(case):
    kind, others = case
    contents = list(MEMBERS.values())
    members = MEMBERS | {name: contents[i] if i < 12 else b"" for name, i in others if encodable(kind, name)}
    prepared("image_folder", "pets.zip", packed(kind, members), {"size": [4, 4]})


def encodable(kind: str, name: str) -> bool:
    """Return whether Python's writer accepts the name."""
    try:
        packed(kind, {name: b""})
    except (ValueError, IndexError):
        return False
    return True


PICTURES = [
    image(1),
    image(2, "JPEG"),
    image(3, "JPEG", progressive=True, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"),
    image(4, "PNG", dpi=(72, 72), icc_profile=bytes(200)),
]


@cases(250, st.tuples(st.sampled_from(PICTURES), st.lists(CUT, max_size=4), st.sampled_from(["rgb", "grey"])))
@pytest.mark.filterwarnings("ignore")
def test_an_image_near_a_valid_one(case):
    content, cuts, color = case
    bounded(lambda: images.decode("p", pieces(content, cuts), (5, 6), "crop", color))


SLIDES = [
    {
        "image": {"pathname": f"/images/{i}.png", "shape": {"r": 9, "c": 8, "channels": 3}, "checksum": ""},
        "objects": [{"category": "ring", "bounding_box": {"minimum": {"r": 1, "c": 1}, "maximum": {"r": 5, "c": 5}}}],
    }
    for i in range(3)
]


@cases(80, st.lists(EDIT, max_size=3))
def test_annotations_near_valid_ones(edits):
    with tempfile.TemporaryDirectory() as folder:
        tree = edited({"all": SLIDES}, edits)
        try:
            text = json.dumps(tree.get("all"), default=str)
        except (TypeError, ValueError):  # a number that Python does not write
            return
        Path(folder, "annotations.json").write_text(text, encoding="utf-8")
        for number in range(3):
            Path(folder, f"{number}.png").write_bytes(image(number))
        bounded(lambda: malaria.read({"malaria.zip": Path(folder)}, size=[6, 6]))


@pytest.mark.parametrize("place", ["image", "category"])
def test_names_in_annotations_that_are_pages_of_text(place, tmp_path):
    name = "a\nb" * 9000
    entry = {"image": "x.png", "objects": [SLIDES[0]["objects"][0] | {"category": "?"}]} | {place: name}
    entry["objects"] = [entry["objects"][0] | ({place: name} if place == "category" else {})]
    (tmp_path / "annotations.json").write_text(json.dumps([entry]))
    bounded(lambda: malaria.read({"malaria.zip": tmp_path}, size=[6, 6]))
    with pytest.raises(ShapelineError, match=r"a\\nba"):
        malaria.read({"malaria.zip": tmp_path}, size=[6, 6])
