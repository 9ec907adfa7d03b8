"""Datasets: the table of sources, and prepare() and load() for every one of them.

A source module (`shapeline.datasets.mnist`, ...) has one function, `read(paths)`, that returns the same dictionary as a
user's own function; everything after it (checks, classes, splits, files) is here and is the same for all. This module
needs only numpy: the configuration imports it before any job.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import json
import logging
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shapeline.datasets import pictures, regions, text
from shapeline.datasets.regions import objects, truth  # noqa: F401 (stand here for others)
from shapeline.errors import ShapelineError, nearest
from shapeline.seeds import digest, seed_of

log = logging.getLogger(__name__)

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
VALIDATION_FRACTION = 0.1
TEST_FRACTION = 0.3
TEXT_SETTINGS = ("unit", "length", "vocabulary")
COLUMN_SETTINGS = ("target", "text", "task", "columns", "categorical")  # of a file of one's own
SETTINGS = (
    *("source", "classes", "path", "validation", "test", "seed", "count"),
    *(*TEXT_SETTINGS, *COLUMN_SETTINGS, *pictures.KEYS),
)
RETURNED_TEXT = ("texts", "labels", "split", "class_names", "kind", "decisive")
RETURNED_TRUTH = ("masks", "boxes", "box_names")
RETURNED = ("inputs", *RETURNED_TEXT, "feature_names", "groups", "categories", "scale", "task", *RETURNED_TRUTH)
TASKS = ("classification", "regression")


@dataclass(frozen=True)
class RemoteFile:
    """One official file: its name, where it is published, and the checksum that makes it official (md5 or sha256).

    Without a checksum none is published, and any content is taken. page: where a person gets a file that has no urls.
    """

    name: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    page: str = ""

    @property
    def algorithm(self) -> str:
        return "md5" if self.md5 and not self.sha256 else "sha256"

    @property
    def checksum(self) -> str:
        return self.sha256 or self.md5 or ""

    def problem(self, path: Path) -> str:
        """What is wrong with the file at `path` ("" when its checksum is the official one, or there is none)."""
        if not self.checksum:
            return ""
        found = file_digest(path, self.algorithm)
        if found == self.checksum:
            return ""
        size = f" of {self.size:,}" if self.size is not None else ""
        return f"found {self.algorithm} {found} ({path.stat().st_size:,}{size} bytes), expected {self.checksum}"


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from and what is in it, known before anything is read.

    official_test: the split is the source's own. optional: files that a local copy may lack. unpacked: what a folder
    holds that is the unpacked archive, or the name of the only file, which a path may then name. synthetic: made here.
    unit, vocabulary: of a text, unless its entry says else. task: "regression" where the labels are numbers, and then
    there are no classes. balanced: of each part as many records of every chosen class as of its rarest are kept, drawn
    by seed. truth: "masks" or "boxes" where it is known where in a picture its class is. count: how many records are
    made where an entry does not say; None where an entry cannot say. local: the records are a user's own, at the
    entry's path; input_shape and classes are empty where only they tell.
    """

    name: str
    kind: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    module: str
    licence: str
    citation: str
    feature_names: tuple[str, ...] = ()
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    official_test: bool = False
    optional: tuple[str, ...] = ()
    unpacked: tuple[str, ...] = ()
    synthetic: bool = False
    unit: str | None = None
    vocabulary: int = text.VOCABULARY
    task: str = "classification"
    balanced: bool = False
    truth: str | None = None
    count: int | None = None
    local: bool = False


# What training may start from, by the name that a model's `weights` gives it; fetched as if of a source "weights".
WEIGHTS = {
    "imagenet": RemoteFile(
        "resnet18-f37072fd.pth",
        ("https://download.pytorch.org/models/resnet18-f37072fd.pth",),
        sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    )
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A prepared dataset in memory.

    inputs: (n, *input_shape) float32, images in [0, 1]; of texts int32 token ids, right-padded with 0. labels: (n,)
    int64, of a regression float64; split: (n,) uint8, 0 train, 1 validation, 2 test; ids: (n,) int64, position in the
    source; card: the dictionary of card.json.
    """

    inputs: np.ndarray
    labels: np.ndarray
    split: np.ndarray
    ids: np.ndarray
    card: dict

    def part(self, name: str) -> "Dataset":
        """The records of one part: "train", "validation" or "test"."""
        if name not in PARTS:
            raise ShapelineError(f"part '{name}' of a dataset: unknown.{nearest(name, PARTS)}")
        rows = np.flatnonzero(self.split == PARTS.index(name))
        return Dataset(self.inputs[rows], self.labels[rows], self.split[rows], self.ids[rows], self.card)


def _mnist_file(name: str, md5: str, size: int) -> RemoteFile:
    hosts = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return RemoteFile(name, tuple(host + name for host in hosts), md5=md5, size=size)


def _agnews_file(name: str, md5: str, size: int | None = None) -> RemoteFile:
    host = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
    return RemoteFile(name, (host + name,), md5=md5, size=size)


_ZHANG = "X. Zhang, J. Zhao, Y. LeCun (2015). Character-level Convolutional Networks for Text Classification. NIPS."
_DIGITS = tuple(str(digit) for digit in range(10))
_MEASURED = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)

SOURCES: dict[str, Source] = {
    "digits": Source(
        name="digits",
        kind="image",
        input_shape=(1, 8, 8),
        classes=_DIGITS,
        files=(),
        module="shapeline.datasets.digits",
        licence="CC BY 4.0 (UCI); comes with scikit-learn",
        citation="E. Alpaydin, C. Kaynak (1998). Optical Recognition of Handwritten Digits. "
        "UCI Machine Learning Repository.",
    ),
    "breast_cancer": Source(
        name="breast_cancer",
        kind="table",
        input_shape=(30,),
        classes=("malignant", "benign"),
        files=(),
        module="shapeline.datasets.breast_cancer",
        licence="CC BY 4.0 (UCI); comes with scikit-learn",
        citation="W. Wolberg, O. Mangasarian, N. Street, W. Street (1995). Breast Cancer Wisconsin (Diagnostic). "
        "UCI Machine Learning Repository.",
        feature_names=(
            *(f"mean {name}" for name in _MEASURED),
            *(f"{name} error" for name in _MEASURED),
            *(f"worst {name}" for name in _MEASURED),
        ),
        groups={name: (f"mean {name}", f"{name} error", f"worst {name}") for name in _MEASURED},
    ),
    "diabetes": Source(
        name="diabetes",
        kind="table",
        input_shape=(10,),
        classes=(),
        files=(),
        module="shapeline.datasets.diabetes",
        licence="none stated; comes with scikit-learn",
        citation="B. Efron, T. Hastie, I. Johnstone, R. Tibshirani (2004). Least Angle Regression. "
        "Annals of Statistics 32(2).",
        feature_names=("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
        task="regression",
    ),
    "mnist": Source(
        name="mnist",
        kind="image",
        input_shape=(1, 28, 28),
        classes=_DIGITS,
        files=(
            _mnist_file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            _mnist_file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            _mnist_file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            _mnist_file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        module="shapeline.datasets.mnist",
        licence="CC BY-SA 3.0",
        citation="Y. LeCun, C. Cortes, C. J. C. Burges (1998). The MNIST database of handwritten digits.",
        official_test=True,
    ),
    "cifar10": Source(
        name="cifar10",
        kind="image",
        input_shape=(3, 32, 32),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        files=(
            RemoteFile(
                "cifar-10-binary.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                size=170_052_171,
            ),
        ),
        module="shapeline.datasets.cifar10",
        licence="none stated; cite Krizhevsky 2009",
        citation="A. Krizhevsky (2009). Learning Multiple Layers of Features from Tiny Images. University of Toronto.",
        official_test=True,
        unpacked=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
    ),
    "image_folder": Source(
        name="image_folder",
        kind="image",
        input_shape=(),
        classes=(),
        files=(),
        module="shapeline.datasets.image_folder",
        licence="",
        citation="",
        local=True,
    ),
    "table_file": Source(
        name="table_file",
        kind="table",
        input_shape=(),
        classes=(),
        files=(),
        module="shapeline.datasets.table_file",
        licence="",
        citation="",
        local=True,
    ),
    "text_file": Source(
        name="text_file",
        kind="text",
        input_shape=(400,),
        classes=(),
        files=(),
        module="shapeline.datasets.text_file",
        licence="",
        citation="",
        unit="word",
        local=True,
    ),
    "fer": Source(
        name="fer",
        kind="image",
        input_shape=(1, 48, 48),
        classes=("happy", "sad"),
        files=(
            # As other libraries recorded the checksum of the challenge's file.
            RemoteFile(
                "fer2013.csv",
                (),
                md5="f8428a1edbd21e88f42c73edd2a14f95",
                page="https://www.kaggle.com/c/challenges-in-representation-learning-facial-expression-recognition-"
                "challenge/data",
            ),
        ),
        module="shapeline.datasets.fer",
        licence="Kaggle's terms of the challenge; not for redistribution",
        citation="I. J. Goodfellow, D. Erhan, P. L. Carrier, A. Courville, et al. (2013). Challenges in Representation "
        "Learning: A report on three machine learning contests. ICONIP.",
        official_test=True,
        unpacked=("train", "test"),
        balanced=True,
    ),
    "ssl": Source(
        name="ssl",
        kind="table",
        input_shape=(14,),
        classes=(),
        files=(
            RemoteFile(
                "Strategic_Subject_List.csv",
                ("https://data.cityofchicago.org/api/views/4aki-r3np/rows.csv?accessType=DOWNLOAD",),
            ),
        ),
        module="shapeline.datasets.ssl",
        licence="terms of use of the City of Chicago",
        citation="Chicago Police Department (2017). Strategic Subject List - Historical. Chicago Data Portal.",
        feature_names=(
            "age",
            "shooting victim",
            "battery or assault victim",
            "violent arrests",
            "gang affiliation",
            "narcotics arrests",
            "criminal trend",
            "weapon arrests",
            "is female",
            "race",
            "weapon in 10 years",
            "drug in 10 years",
            "on parole",
            "last contact",
        ),
        groups={
            "used by the algorithm": (
                "age",
                "shooting victim",
                "battery or assault victim",
                "violent arrests",
                "gang affiliation",
                "narcotics arrests",
                "criminal trend",
                "weapon arrests",
            ),
            "not used": (
                "is female",
                "race",
                "weapon in 10 years",
                "drug in 10 years",
                "on parole",
                "last contact",
            ),
        },
        unpacked=("Strategic_Subject_List.csv",),
        task="regression",
    ),
    "compas": Source(
        name="compas",
        kind="table",
        input_shape=(9,),
        classes=(),
        files=(
            RemoteFile(
                "compas-scores-two-years.csv",
                ("https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",),
            ),
        ),
        module="shapeline.datasets.compas",
        licence="none stated; cite ProPublica",
        citation="J. Angwin, J. Larson, S. Mattu, L. Kirchner (2016). Machine Bias. ProPublica.",
        feature_names=(
            "age",
            "priors",
            "juvenile felonies",
            "juvenile misdemeanors",
            "other juvenile offences",
            "days from screening to arrest",
            "is female",
            "race",
            "felony charge",
        ),
        groups={
            "person": ("age", "is female", "race"),
            "record": ("priors", "juvenile felonies", "juvenile misdemeanors", "other juvenile offences"),
            "charge": ("days from screening to arrest", "felony charge"),
        },
        unpacked=("compas-scores-two-years.csv",),
        task="regression",
    ),
    "imdb": Source(
        name="imdb",
        kind="text",
        input_shape=(400,),
        classes=("negative", "positive"),
        files=(
            RemoteFile(
                "aclImdb_v1.tar.gz",
                ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
                md5="7c2ac02c03563afcf9b574c7e56c153a",
                sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                size=84_125_825,
            ),
        ),
        module="shapeline.datasets.imdb",
        licence="none stated; cite Maas et al. 2011",
        citation="A. L. Maas, R. E. Daly, P. T. Pham, D. Huang, A. Y. Ng, C. Potts (2011). Learning Word Vectors for "
        "Sentiment Analysis. ACL.",
        official_test=True,
        unpacked=("train", "test"),
        unit="word",
    ),
    "agnews": Source(
        name="agnews",
        kind="text",
        input_shape=(1014,),
        classes=("World", "Sports", "Business", "Sci/Tech"),
        files=(
            _agnews_file("train.csv", "b1a00f826fdfbd249f79597b59e1dc12"),
            _agnews_file("test.csv", "d52ea96a97a2d943681189a97654912d", 1_857_427),
        ),
        module="shapeline.datasets.agnews",
        licence="non-commercial use (AG's corpus)",
        citation=f"{_ZHANG} The corpus: A. Gulli (2004), AG's corpus of news articles.",
        official_test=True,
        optional=("train.csv",),
        unit="character",
    ),
    "yahoo": Source(
        name="yahoo",
        kind="text",
        input_shape=(400,),
        classes=(
            "Society & Culture",
            "Science & Mathematics",
            "Health",
            "Education & Reference",
            "Computers & Internet",
            "Sports",
            "Business & Finance",
            "Entertainment & Music",
            "Family & Relationships",
            "Politics & Government",
        ),
        files=(
            RemoteFile(
                "yahoo_answers_csv.tgz",
                ("https://s3.amazonaws.com/fast-ai-nlp/yahoo_answers_csv.tgz",),
                sha256="2d4277855faf8b35259009425fa8f7fe1888b5644b47165508942d000f4c96ae",
                size=319_476_345,
            ),
        ),
        module="shapeline.datasets.yahoo",
        licence="research use (Yahoo! Webscope)",
        citation=_ZHANG,
        official_test=True,
        unpacked=("train.csv", "test.csv"),
        unit="word",
        vocabulary=20_001,
    ),
    "polarity": Source(
        name="polarity",
        kind="text",
        input_shape=(60,),
        classes=("negative", "positive"),
        files=(
            RemoteFile(
                "rt-polaritydata.tar.gz",
                (
                    "https://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz",
                    "https://storage.googleapis.com/seldon-datasets/sentence_polarity_v1/rt-polaritydata.tar.gz",
                ),
                sha256="a05befe52aafda71d458d188a1c54506a998b1308613ba76bbda2e5029409ce9",
                size=487_770,
            ),
        ),
        module="shapeline.datasets.polarity",
        licence="none stated; cite Pang & Lee 2005",
        citation="B. Pang, L. Lee (2005). Seeing stars: Exploiting class relationships for sentiment categorization "
        "with respect to rating scales. ACL.",
        unpacked=("rt-polarity.neg", "rt-polarity.pos"),
        unit="word",
    ),
    "reviews": Source(
        name="reviews",
        kind="text",
        input_shape=(40,),
        classes=("negative", "positive"),
        files=(),
        module="shapeline.datasets.reviews",
        licence="MIT, as this package",
        citation="Synthetic: made by shapeline.datasets.reviews; no person wrote these reviews.",
        synthetic=True,
        unit="word",
        vocabulary=500,
    ),
    "crosses": Source(
        name="crosses",
        kind="image",
        input_shape=(3, 100, 120),
        classes=("no cross", "cross"),
        files=(),
        module="shapeline.datasets.crosses",
        licence="MIT, as this package",
        citation="Synthetic: made by shapeline.datasets.crosses, after the description in J. Teneggi, A. Luster, "
        "J. Sulam (2021). Fast Hierarchical Games for Image Explanations.",
        official_test=True,
        synthetic=True,
        truth="masks",
        count=8000,
    ),
    "malaria": Source(
        name="malaria",
        kind="image",
        input_shape=(3, 1200, 1600),
        classes=("no trophozoite", "trophozoite"),
        files=(RemoteFile("malaria.zip", ("https://data.broadinstitute.org/bbbc/BBBC041/malaria.zip",)),),
        module="shapeline.datasets.malaria",
        licence="CC BY-NC-SA 3.0",
        citation="Image set BBBC041v1 of the Broad Bioimage Benchmark Collection: V. Ljosa, K. L. Sokolnicki, "
        "A. E. Carpenter (2012). Annotated high-throughput microscopy image sets for validation. Nature Methods 9.",
        official_test=True,
        optional=("test.json",),
        unpacked=("images",),
        truth="boxes",
    ),
    "lisa": Source(
        name="lisa",
        kind="image",
        input_shape=(3, 960, 1280),
        classes=("no green light", "green light"),
        files=(
            RemoteFile(
                "lisa-traffic-light-dataset.zip",
                (),
                page="https://www.kaggle.com/datasets/mbornoe/lisa-traffic-light-dataset",
            ),
        ),
        module="shapeline.datasets.lisa",
        licence="CC BY-NC-SA 4.0",
        citation="M. B. Jensen, M. P. Philipsen, A. Møgelmose, T. B. Moeslund, M. M. Trivedi (2016). Vision for "
        "Looking at Traffic Lights: Issues, Survey, and Perspectives. IEEE Transactions on Intelligent Transportation "
        "Systems 17(7).",
        official_test=True,
        unpacked=("Annotations",),
        truth="boxes",
    ),
}


def source_named(name: str) -> Source:
    """The source of that name in SOURCES; an unknown name raises a ShapelineError with the nearest one."""
    if name not in SOURCES:
        raise ShapelineError(
            f"source '{name}': unknown.{nearest(name, SOURCES)} Or name your own as path/to/file.py:function."
        )
    return SOURCES[name]


def source_for(settings: dict) -> Source | None:
    """The source of a dataset entry as its keys and its file's header tell; None for a user's own function."""
    entry = SOURCES.get(settings["source"])
    if entry is None or not (entry.local and entry.kind == "table"):
        return entry
    names = ()
    with contextlib.suppress(ShapelineError):  # told by check()
        names = _columns_of(settings) or ()
    return dataclasses.replace(
        entry, task=settings.get("task") or entry.task, feature_names=names, input_shape=(len(names),) if names else ()
    )


def _columns_of(settings: dict) -> tuple[str, ...] | None:
    # By name: were it imported, an edit of that file would run the jobs of all datasets again.
    module = importlib.import_module(SOURCES["table_file"].module)
    return module.columns_of(settings) if settings.get("path") else None


def remote_files(source: str) -> tuple[RemoteFile, ...]:
    """The official files of a source, or of "weights"; an unknown source is a ShapelineError."""
    return tuple(WEIGHTS.values()) if source == "weights" else source_named(source).files


def is_own(source: str) -> bool:
    """Whether the text names a user's own function (path/to/file.py:function) and not an entry of SOURCES."""
    return ".py" in source


def file_digest(path: Path, algorithm: str) -> str:
    """The hexadecimal md5 or sha256 of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def expand(path: str | os.PathLike) -> Path:
    """A path with ~ and environment variables filled in; a variable that is not set is a ShapelineError."""
    text = os.path.expanduser(os.path.expandvars(os.fspath(path)))
    unset = re.search(r"\$(\{\w+\}|\w+)", text)
    if unset:
        raise ShapelineError(f"path '{path}': the environment variable {unset.group().strip('${}')} is not set.")
    return Path(text)


def user_function(text: str) -> Callable:
    """The function that "path/to/file.py:function" names (path relative to the working directory).

    Raises ShapelineError when the file or the function is not there. Errors inside the user's file are not caught:
    their own traceback says more.
    """
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise ShapelineError(f"source '{text}': write your own source as path/to/file.py:function.")
    path = expand(file)
    if not path.is_file():
        raise ShapelineError(f"source '{text}': there is no file {path} (paths start at the repository root).")
    # The digest keeps two files of one name apart; sys.modules is where pickle and dataclasses look a module up.
    module_name = f"shapeline_own_{path.stem}_{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        names = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        hint = nearest(name, names) if names else " It defines no function."
        raise ShapelineError(f"source '{text}': {path} has no function '{name}'.{hint}")
    return getattr(module, name)


def check(source: str, settings: dict) -> None:
    """Check a dataset entry without reading any data: names, ranges, impossible combinations.

    settings: any of source, classes, path, validation, test, seed and, for a text, unit ("word" or "character"),
    length (tokens a document) and vocabulary (words known, padding and unknown counted), and for a source that takes
    them the keys of pictures (see pictures.decode). Raises ShapelineError.
    """
    for key in settings:
        if key not in SETTINGS:
            raise ShapelineError(f"dataset key '{key}': unknown.{nearest(key, SETTINGS)}")
    if settings.get("source", source) != source:
        raise ShapelineError(f"dataset source '{source}': its settings name another source, '{settings['source']}'.")
    for key, lowest in (("validation", "0 <="), ("test", "0 <")):
        fraction = settings.get(key, 0.5)
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not number or not 0 <= fraction < 1 or (key == "test" and fraction == 0):
            raise ShapelineError(
                f"dataset key '{key}': {fraction!r} is not a fraction; write a number, {lowest} {key} < 1."
            )
    seed = settings.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ShapelineError(f"dataset key 'seed': {seed!r} is not a whole number.")
    count = settings.get("count")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise ShapelineError(f"dataset key 'count': {count!r} is not a whole number of records, 1 or more.")
    if count is not None and (is_own(source) or source_named(source).count is None):
        counted = ", ".join(name for name, known in SOURCES.items() if known.count is not None)
        raise ShapelineError(f"dataset key 'count': source '{source}' has its own records; only {counted} takes it.")
    pictures.check(settings)
    _refuse_picture_settings(source, settings)
    if is_own(source):
        text.settings_of(settings)
        return
    entry = source_named(source)
    if entry.kind != "text":
        _refuse_text_settings(source, entry.kind, settings)
    else:
        text_settings(entry, settings)
    local = settings.get("path") is not None
    # A local copy may lack the official training file, and then the rest is split by `test`.
    if entry.official_test and "test" in settings and not (local and entry.optional):
        raise ShapelineError(f"dataset key 'test': source '{source}' has an official test part; remove the key.")
    if entry.count is not None and "validation" in settings:
        raise ShapelineError(f"dataset key 'validation': source '{source}' makes a validation part; remove the key.")
    if entry.local and not local:
        raise ShapelineError(
            f"dataset key 'path': source '{source}' reads data of your own; name their file, folder or archive."
        )
    if entry.local:
        _check_columns(entry, settings)
    if not (entry.files or entry.local) and local:
        origin = "is made by this package" if entry.synthetic else "comes with scikit-learn"
        raise ShapelineError(f"dataset key 'path': source '{source}' {origin}; remove the key.")
    if entry.task == "regression":
        _refuse_classes(source, settings)
    elif entry.classes:
        chosen_classes(source, entry.classes, settings.get("classes"))


def _check_columns(entry: Source, settings: dict) -> None:
    """Check that the columns which an entry names are in its file, where there is one."""
    if settings.get("task") not in (None, *TASKS):
        raise ShapelineError(f"dataset key 'task': {settings['task']!r} is unknown.{nearest(settings['task'], TASKS)}")
    if entry.kind == "table":
        _columns_of(settings)
        if settings.get("task") == "regression":
            _refuse_classes(entry.name, settings)
    elif entry.kind == "text":
        importlib.import_module(SOURCES["table_file"].module).checked_names(settings, ("text", "target"))


def input_shape(entry: Source, settings: dict) -> tuple[int, ...] | None:
    """The shape of one input of a dataset entry; None where only the pictures themselves tell."""
    return pictures.shape_of(settings) or entry.input_shape or None


def text_settings(entry: Source | None, settings: dict) -> text.Settings:
    """How a text's documents become tokens: the entry's keys, else those of its source, else the usual ones."""
    if entry is None:
        return text.settings_of(settings)
    return text.settings_of(settings, entry.unit, entry.input_shape[0], entry.vocabulary)


def unit_of(settings: dict) -> str | None:
    """The unit of the tokens, "word" or "character", of a dataset entry (source, unit); None where it is no text.

    Of a user's own source it is what the entry says, None where it says nothing.
    """
    entry = SOURCES.get(settings["source"])
    return settings.get("unit") or (entry.unit if entry else None)


def _refuse_text_settings(source: str, kind: str, settings: dict) -> None:
    for key in TEXT_SETTINGS:
        if settings.get(key) is not None:
            raise ShapelineError(f"dataset key '{key}': source '{source}' is of kind {kind}, not text; remove the key.")


def _refuse_picture_settings(source: str, settings: dict) -> None:
    given = [key for key in (*pictures.KEYS, *COLUMN_SETTINGS) if settings.get(key) is not None]
    taken = ()
    if given and not is_own(source):
        taken = inspect.signature(importlib.import_module(source_named(source).module).read).parameters
    for key in given:
        if key not in taken:
            raise ShapelineError(f"dataset key '{key}': source '{source}' does not take it; remove the key.")


def _refuse_classes(source: str, settings: dict) -> None:
    if settings.get("classes") is not None:
        raise ShapelineError(f"dataset key 'classes': source '{source}' is of regression, it has none; remove the key.")


def chosen_classes(where: str, names: Iterable[str], classes: list | None) -> list[int]:
    """The original class indices that `classes` (indices or names, in the order of the new labels) selects.

    None selects all. Raises ShapelineError for an unknown or repeated class and for fewer than two.
    """
    names = list(names)
    if classes is None:
        classes = list(range(len(names)))
    chosen = []
    for item in classes:
        index = class_index(f"classes of source '{where}'", item, names)
        if index in chosen:
            raise ShapelineError(f"classes of source '{where}': '{names[index]}' is listed twice.")
        chosen.append(index)
    if len(chosen) < 2:
        raise ShapelineError(f"classes of source '{where}': {len(chosen)} chosen; a classifier needs at least two.")
    return chosen


def class_index(where: str, item: int | str, names: list[str]) -> int:
    """The place among the classes of one that is given by index or name; another is a ShapelineError."""
    if isinstance(item, int | np.integer) and not isinstance(item, bool) and 0 <= item < len(names):
        return int(item)
    if isinstance(item, str) and item in names:
        return names.index(item)
    raise ShapelineError(f"{where}: {item!r} is not one of them.{nearest(item, names)}")


def prepare(source: str, settings: dict, raw_files: Iterable[str | os.PathLike], folder: str | os.PathLike) -> dict:
    """Read a source, choose its classes, split it, and write arrays.npz and card.json into `folder`.

    Of a text also documents.parquet: id, text, and where they are known the decisive words; its vocabulary is that of
    the training part of the chosen classes. Where the reader says where in a picture its class is, also truth.npz.

    source: a name of SOURCES or path/to/file.py:function. raw_files: the official files, in any order, verified by
    checksum (ignored where settings["path"] names a local copy, which is not). Returns the card. The same arguments
    write the same bytes. Raises ShapelineError, one line, for whatever is wrong with the settings or the data.
    """
    check(source, settings)
    own = is_own(source)
    entry = None if own else source_named(source)
    records = _read_own(source, settings) if own else _read_official(entry, settings, raw_files)
    where = f"{source} ({settings['path']})" if settings.get("path") is not None else source
    if records.get("texts") is not None:
        content = _checked_texts(where, records, entry, settings)
    else:
        content = _checked(where, records, entry)
        _refuse_text_settings(source, content["kind"], settings)
    labels, split = content["labels"], content["split"]
    regression = content.get("task") == "regression"
    strata = np.zeros(len(labels), np.int64) if regression else labels
    seed = settings.get("seed", 0)
    own_split = own and split is not None
    if split is None:
        split = np.zeros(len(labels), np.uint8)
        split[_held_out(strata, split == TRAIN, settings.get("test", TEST_FRACTION), seed, "test")] = TEST
    elif "test" in settings:
        raise ShapelineError(f"dataset key 'test': source '{source}' returns its own split; remove the key.")
    if not (split == VALIDATION).any():
        fraction = settings.get("validation", VALIDATION_FRACTION)
        split[_held_out(strata, split == TRAIN, fraction, seed, "validation")] = VALIDATION
    elif "validation" in settings:
        raise ShapelineError(f"dataset key 'validation': source '{source}' returns its own validation part; remove it.")

    if regression:
        _refuse_classes(source, settings)
        class_names, kept = [], np.arange(len(labels))
    else:
        names = content["class_names"]
        chosen = chosen_classes(source, names, settings.get("classes"))
        relabelled = np.full(len(names), -1, np.int64)
        relabelled[chosen] = np.arange(len(chosen))
        class_names, kept = [names[index] for index in chosen], np.flatnonzero(relabelled[labels] >= 0)
        if entry and entry.balanced:
            unbalanced, kept = len(kept), _balanced(labels, split, kept, seed)
            content["odd"]["left_out_to_balance"] = unbalanced - len(kept)
            content["notes"].append("as many of each class as of the rarest, in each part, drawn by seed")
        labels = relabelled[labels]
    if content["kind"] == "text":
        inputs, described, documents = _encoded(content, kept, split[kept] == TRAIN)
        described["synthetic"] = entry.synthetic if entry else None
        # The card is an input of the jobs that read the documents, whose file has no rule of its own.
        hashed = hashlib.sha256()
        for one in documents["text"]:
            hashed.update(one.encode() + b"\0")
        for flags in documents.get("decisive", ()):
            hashed.update(flags.tobytes() + b"\2")
        described["documents_digest"] = hashed.hexdigest()
        content["odd"]["truncated"] = int((content["tokens"].sizes[content["ids"][kept]] > inputs.shape[1]).sum())
    else:
        # Not copied where all are kept: large pictures fill the memory.
        inputs = content["inputs"] if len(kept) == len(content["inputs"]) else content["inputs"][kept]
        documents = None
        described = {"task": "regression"} if regression else {}
        described |= {
            key: content[key] for key in ("notes", "categorical", "categories", "columns", "missing") if content[key]
        }
        if entry and entry.synthetic:
            described["synthetic"] = True
    marked = content.get("truth") and regions.arrays(content["truth"], kept, content["ids"][kept])
    if marked:
        described |= regions.described(marked)
        for name, number in content["truth"]["odd"].items():  # beside those that the reader counted
            content["odd"][name] = content["odd"].get(name, 0) + number
    arrays = {
        "inputs": inputs,
        "labels": labels[kept],
        "split": split[kept],
        "ids": content["ids"][kept],
    }
    card = {
        "name": Path(folder).name,
        "source": source,
        "kind": content["kind"],
        "input_shape": list(arrays["inputs"].shape[1:]),
        "classes": class_names,
        "counts": _counts(where, class_names, arrays["labels"], arrays["split"], own_split),
        "scale": content["scale"],
        "feature_names": content["feature_names"],
        "groups": content["groups"],
        "licence": entry.licence if entry else "",
        "citation": entry.citation if entry else "",
        "urls": [url for file in entry.files for url in file.urls or (file.page,)] if entry else [],
        "records": {
            "read": content["read"],
            "skipped_other_classes": int((labels < 0).sum()) if class_names else 0,
            **content["odd"],
        },
        "settings": dict(settings),
        **described,
    }
    _write(Path(folder), arrays, card, documents, marked)
    return card


def load(folder: str | os.PathLike) -> Dataset:
    """Read what prepare() wrote; inputs come back as float32, divided by the card's scale, texts as int32 ids.

    Raises ShapelineError when the folder is missing, damaged or holds files that do not belong together.
    """
    folder = Path(folder)
    again = "delete the folder and run again"
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        # Opened here because np.load leaves its own file open when the archive is damaged.
        with open(folder / "arrays.npz", "rb") as stream, np.load(stream, allow_pickle=False) as stored:
            inputs, labels, split, ids = (stored[key] for key in ("inputs", "labels", "split", "ids"))
        counted = sum(sum(classes.values()) for classes in card["counts"].values())
        input_shape, scale, kind = card["input_shape"], card["scale"], card["kind"]
    except FileNotFoundError as error:
        raise ShapelineError(f"prepared dataset {folder}: {error.filename} is missing; {again}.") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ShapelineError(f"prepared dataset {folder}: damaged ({error}); {again}.") from error
    if list(inputs.shape[1:]) != input_shape or not len(inputs) == len(labels) == len(split) == counted:
        raise ShapelineError(f"prepared dataset {folder}: arrays.npz and card.json disagree; {again}.")
    inputs = inputs.astype(np.int32 if kind == "text" else np.float32)
    if scale != 1:
        inputs /= np.float32(scale)
    return Dataset(inputs, labels, split, ids, card)


def _read_own(source: str, settings: dict) -> dict:
    """Call the user's function, with the path when there is one."""
    function = user_function(source)
    arguments = []
    if settings.get("path") is not None:
        path = expand(settings["path"])
        if not path.exists():
            raise ShapelineError(f"dataset key 'path': there is nothing at {path}.")
        arguments = [str(path)]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        remedy = "it takes no path; remove the key" if arguments else "it needs a path; add the key"
        raise ShapelineError(f"dataset key 'path' of source '{source}': {remedy} ({error}).") from error
    records = function(*arguments)
    if not isinstance(records, dict):
        raise ShapelineError(f"source '{source}': returned {type(records).__name__}; return a dict.")
    for key in records:
        if key not in RETURNED:
            raise ShapelineError(f"source '{source}': returned an unknown key '{key}'.{nearest(key, RETURNED)}")
    if records.get("texts") is not None:
        for key, value in records.items():
            if key not in RETURNED_TEXT and value is not None:
                raise ShapelineError(f"source '{source}': returned '{key}', which does not go with 'texts'.")
        if records.get("kind") not in (None, "text"):
            raise ShapelineError(
                f"source '{source}': returned 'texts' and kind '{records['kind']}'; leave the kind out."
            )
    elif records.get("kind") == "text":
        raise ShapelineError(f"source '{source}': a source of kind text returns its documents as 'texts'.")
    elif records.get("inputs") is None:
        raise ShapelineError(f"source '{source}': returned no 'inputs' and no 'texts'.")
    if records.get("labels") is None:
        raise ShapelineError(f"source '{source}': returned no 'labels'.")
    return records


def _read_official(entry: Source, settings: dict, raw_files: Iterable[str | os.PathLike]) -> dict:
    """Call the module of the source with {file name: path} and the keys of the entry that are its parameters."""
    if settings.get("path") is not None:
        paths = local_files(entry, expand(settings["path"]))
    else:
        raw_files = [raw_files] if isinstance(raw_files, str | os.PathLike) else raw_files
        given = {Path(path).name: Path(path) for path in raw_files}
        paths = {file.name: given.get(file.name) for file in entry.files}
        for file in entry.files:
            path = paths[file.name]
            if path is None or not path.is_file():
                raise ShapelineError(f"{entry.name}: the file {path or file.name} is missing; fetch it first.")
            # A file placed by hand never went through fetch, so this is the first look at it.
            if problem := file.problem(path):
                raise ShapelineError(f"{path}: {problem}; delete it, and fetch it again or replace it by hand.")
    read = importlib.import_module(entry.module).read
    return read(paths, **{key: settings[key] for key in inspect.signature(read).parameters if key in settings})


def local_files(entry: Source, folder: Path) -> dict[str, Path]:
    """Official name -> path of the files in a local folder, with or without .gz; a missing one is a ShapelineError.

    Where the source is one file, a path may name it, whatever it is called; where that is an archive, a folder may be
    what it unpacks to: then the archive's name has that folder. A user's own has the source's name.
    """
    if entry.local:
        if not folder.exists():
            raise ShapelineError(f"dataset key 'path': there is no file or folder {folder}.")
        return {entry.name: folder}
    if entry.unpacked:
        return {entry.files[0].name: _archive_or_folder(entry, folder)}
    if not folder.is_dir():
        wanted = ", ".join(file.name for file in entry.files)
        raise ShapelineError(f"dataset key 'path': {folder} is not a folder; {entry.name} wants one with {wanted}.")
    paths = {}
    for file in entry.files:
        candidates = [folder / file.name, folder / file.name.removesuffix(".gz")]
        present = [path for path in candidates if path.is_file()]
        if present:
            paths[file.name] = present[0]
        elif file.name not in entry.optional:
            raise ShapelineError(f"dataset key 'path': {folder} holds no {file.name}, which {entry.name} needs.")
    return paths


def _archive_or_folder(entry: Source, path: Path) -> Path:
    """The archive itself, or the folder that holds all that it unpacks to: the path, or a folder in it."""
    name = entry.files[0].name
    if path.is_file():
        return path
    if not path.is_dir():
        raise ShapelineError(f"dataset key 'path': there is no file or folder {path}; {entry.name} wants {name}.")
    if (path / name).is_file():
        return path / name
    for folder in (path, *sorted(child for child in path.iterdir() if child.is_dir())):
        if all((folder / part).exists() for part in entry.unpacked):
            return folder
    needed = " and ".join(part for part in entry.unpacked if part != name)
    absent = f"neither {name} nor {needed}" if needed else f"no {name}"
    raise ShapelineError(f"dataset key 'path': {path} holds {absent}, which {entry.name} needs.")


def _checked(where: str, records: dict, entry: Source | None) -> dict:
    """The records as arrays of the stored types, with every default filled in; bad data is a ShapelineError."""
    columns = getattr(records["inputs"], "columns", None)
    try:
        inputs = np.asarray(records["inputs"])
        if inputs.dtype.kind not in "buif":
            inputs = inputs.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ShapelineError(f"{where}: inputs are not an array of numbers ({error}).") from error
    kind = records.get("kind") or (entry.kind if entry else "table" if inputs.ndim == 2 else "image")
    if kind not in ("image", "table"):
        raise ShapelineError(f"{where}: kind '{kind}' is unknown.{nearest(kind, ('image', 'table'))}")
    if kind == "image" and inputs.ndim == 3:
        inputs = inputs[:, None]
    if inputs.ndim != (2 if kind == "table" else 4) or 0 in inputs.shape:
        wanted = "(n, columns)" if kind == "table" else "(n, channels, height, width) or (n, height, width)"
        raise ShapelineError(f"{where}: inputs of shape {inputs.shape}; a source of kind {kind} wants {wanted}.")
    if kind == "image" and inputs.shape[3] in (1, 3, 4) and inputs.shape[1] not in (1, 3, 4):
        raise ShapelineError(f"{where}: inputs of shape {inputs.shape} have the channels last; move them to axis 1.")

    default_names = entry.feature_names if entry else columns if columns is not None else ()
    if kind == "table" and not len(default_names):
        default_names = [f"column {index}" for index in range(inputs.shape[1])]
    given_names = records.get("feature_names")
    feature_names = [str(name) for name in (default_names if given_names is None else given_names)]
    if kind == "table" and len(feature_names) != inputs.shape[1]:
        raise ShapelineError(f"{where}: {len(feature_names)} feature_names for {inputs.shape[1]} columns.")
    if len(set(feature_names)) != len(feature_names):
        raise ShapelineError(f"{where}: feature_names must differ from each other.")

    task = records.get("task") or (entry.task if entry else "classification")
    if task not in TASKS:
        raise ShapelineError(f"{where}: task '{task}' is unknown.{nearest(task, TASKS)}")
    if task == "regression":
        labels, class_names = _targets(where, records), []
    else:
        labels, class_names = _labels(where, records["labels"], records.get("class_names"), entry)
    if len(labels) != len(inputs):
        raise ShapelineError(f"{where}: {len(labels)} labels for {len(inputs)} inputs.")
    groups = records.get("groups") or (entry.groups if entry else {})
    missing = records.get("missing")
    categories = _categories(where, records.get("categories") or {}, inputs, feature_names, missing is not None)
    skipped = records.get("skipped", {})
    inputs, scale, odd = _stored(where, inputs, kind, records.get("scale"), feature_names, missing is not None)
    return {
        "inputs": inputs,
        "labels": labels,
        "split": _split(where, records.get("split"), len(labels)),
        "ids": np.arange(len(labels)),
        "read": len(labels) + sum(skipped.values()),
        "class_names": class_names,
        "feature_names": feature_names,
        "groups": {str(name): [str(column) for column in members] for name, members in groups.items()},
        "kind": kind,
        "task": task,
        "scale": scale,
        "truth": regions.checked(where, records, labels, class_names, inputs.shape[2:]) if kind == "image" else None,
        "odd": {"odd_outside_unit_range": odd, **skipped, **records.get("odd", {})},
        "notes": list(records.get("notes", [])),
        "categorical": [feature_names.index(name) for name in categories],
        "categories": categories,
        "columns": records.get("columns"),
        "missing": missing,
    }


def _categories(
    where: str, categories: dict, inputs: np.ndarray, names: list[str], missing: bool
) -> dict[str, list[str]]:
    """Of each column of codes 0, 1, 2, ... what they stand for, in the order of the columns; missing: NaN may be."""
    checked = {str(name): [str(value) for value in values] for name, values in categories.items()}
    for name, values in checked.items():
        if name not in names:
            raise ShapelineError(f"{where}: categories of '{name}', which is no column.{nearest(name, names)}")
        codes = inputs[:, names.index(name)]
        strange = ~(np.isin(codes, np.arange(len(values))) | (np.isnan(codes) if missing else False))
        if strange.any():
            record = int(np.argmax(strange))
            raise ShapelineError(
                f"{where}: record {record}, column '{name}' is {inputs[record, names.index(name)]}; it has "
                f"{len(values)} categories, so its codes are 0 to {len(values) - 1}."
            )
    return {name: checked[name] for name in names if name in checked}


def _balanced(labels: np.ndarray, split: np.ndarray, kept: np.ndarray, seed: int) -> np.ndarray:
    """Those of the kept records that leave each part with as many of every class as of its rarest."""
    drawn = []
    for part, name in enumerate(PARTS):
        here = kept[split[kept] == part]
        members = {label: here[labels[here] == label] for label in np.unique(labels[kept]).tolist()}
        least = min(len(records) for records in members.values())
        for label, records in members.items():
            generator = np.random.default_rng(seed_of("balance", seed, name, label))
            drawn.append(generator.permutation(records)[:least])
    return np.sort(np.concatenate(drawn))


def _checked_texts(where: str, records: dict, entry: Source | None, settings: dict) -> dict:
    """The documents as tokens, without those that have none, and all else that _checked() gives."""
    texts, n_undecodable = [], 0
    for record, document in enumerate(records["texts"]):
        if not isinstance(document, str):
            raise ShapelineError(f"{where}: record {record} is {type(document).__name__}, not a text.")
        document, undecodable = text.repaired(document)
        texts.append(document)
        n_undecodable += undecodable
    labels, class_names = _labels(where, records["labels"], records.get("class_names"), entry)
    if len(labels) != len(texts):
        raise ShapelineError(f"{where}: {len(labels)} labels for {len(texts)} texts.")
    split = _split(where, records.get("split"), len(texts))
    tokens = text.tokenize(texts, text_settings(entry, settings))
    filled = np.flatnonzero(~tokens.empty)
    for count, what in ((tokens.empty.sum(), "without a word, left out"), (n_undecodable, "with undecodable bytes")):
        if count:
            log.warning("%s: %d document(s) %s", where, count, what)
    return {
        "texts": texts,
        "tokens": tokens,
        "decisive": _decisive(where, records.get("decisive"), tokens),
        "labels": labels[filled],
        "split": None if split is None else split[filled],
        "ids": filled,
        "read": len(texts),
        "class_names": class_names,
        "feature_names": [],
        "groups": {},
        "kind": "text",
        "scale": 1,
        "odd": {"empty": int(tokens.empty.sum()), "undecodable": n_undecodable},
        "notes": records.get("notes", []),
    }


def _decisive(where: str, decisive: Iterable | None, tokens: text.Tokens) -> list[np.ndarray] | None:
    """Of each document one bool a word, whether it decides the class; None where that is not known."""
    if decisive is None:
        return None
    decisive = [np.asarray(flags) for flags in decisive]
    if len(decisive) != len(tokens.n_words):
        raise ShapelineError(f"{where}: decisive words of {len(decisive)} records for {len(tokens.n_words)} texts.")
    for record, (flags, n_words) in enumerate(zip(decisive, tokens.n_words, strict=True)):
        if flags.shape != (n_words,) or (n_words and flags.dtype != bool):
            raise ShapelineError(
                f"{where}: record {record} has {n_words} words and decisive of shape {flags.shape} and type "
                f"{flags.dtype}; give one bool a word."
            )
    return decisive


def _encoded(content: dict, kept: np.ndarray, training: np.ndarray) -> tuple[np.ndarray, dict, dict]:
    """The ids (n, length) of the kept documents, what the card says of them, and the columns of documents.parquet."""
    tokens, rows = content["tokens"], content["ids"][kept]
    settings, words = tokens.settings, tokens.settings.unit == "word"
    inputs, vocabulary = text.encode(tokens, rows, training)
    described = {
        "unit": settings.unit,
        "absent_id": text.PADDING if words else text.SPACE,
        "space_id": None if words else text.SPACE,
        "mean_words": float(tokens.n_words[rows].mean()) if len(rows) else 0.0,
        "notes": content["notes"],
        "vocabulary_digest": digest(vocabulary),
        "vocabulary": vocabulary,
    }
    documents = {"id": rows, "text": [content["texts"][row] for row in rows]}
    if content["decisive"] is not None:
        # As the words are: the last ones of a long document, or those of its first characters.
        decisive = [content["decisive"][row] for row in rows]
        if words:
            documents["decisive"] = [flags[-settings.length :] for flags in decisive]
        else:
            n_left = [len(text.words_of(document, "character", settings.length)) for document in documents["text"]]
            documents["decisive"] = [flags[:n] for flags, n in zip(decisive, n_left, strict=True)]
    return inputs, described, documents


def documents(folder: str | os.PathLike, ids: Iterable[int]) -> list[str]:
    """The original texts of records of a prepared text dataset, in the order of the ids; an unknown id is a
    ShapelineError."""
    return _document_column(Path(folder), ids, "text")


def decisive(folder: str | os.PathLike, ids: Iterable[int]) -> list[np.ndarray]:
    """Of each record one bool a word, aligned to words(): whether it decides the class. Raises ShapelineError where
    the dataset does not know."""
    return [np.array(flags, bool) for flags in _document_column(Path(folder), ids, "decisive")]


def words(document: str, card: dict) -> list[str]:
    """The words of a document as the tokenizer saw them, after truncation, in reading order: one a feature."""
    return text.words_of(document, card["unit"], card["input_shape"][0])


def encode(documents: list[str], card: dict) -> np.ndarray:
    """New documents as ids (n, length) int32 of a text dataset's vocabulary, cut and padded as its own are."""
    settings = text.Settings(card["unit"], card["input_shape"][0], len(card["vocabulary"]))
    return text.encode_with(documents, settings, card["vocabulary"])


def _document_column(folder: Path, ids: Iterable[int], column: str) -> list:
    import pyarrow.parquet

    ids, file = [int(record) for record in ids], folder / "documents.parquet"
    try:
        if column not in pyarrow.parquet.read_schema(file).names:
            raise ShapelineError(f"{file}: the decisive words of this dataset are not known.")
        table = pyarrow.parquet.read_table(file, columns=["id", column], filters=[("id", "in", set(ids))])
    except FileNotFoundError as error:
        raise ShapelineError(f"{file} is missing; delete the folder of the dataset and run again.") from error
    except (OSError, ValueError) as error:
        raise ShapelineError(f"{file}: damaged ({error}); delete the folder of the dataset and run again.") from error
    found = dict(zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True))
    for record in ids:
        if record not in found:
            raise ShapelineError(f"{file}: there is no record {record}.")
    return [found[record] for record in ids]


def _stored(where: str, inputs: np.ndarray, kind: str, scale: float | None, names: list[str], missing: bool) -> tuple:
    """The inputs as uint8 (images) or float32, their scale, and how many records leave [0, 1] (images).

    missing: whether cells may be NaN, which then is what is missing.
    """
    if kind == "image" and inputs.dtype == np.uint8:
        scale = 255 if scale is None else scale
    elif kind == "image" and inputs.dtype.kind in "iu" and scale is None:
        raise ShapelineError(f"{where}: images of type {inputs.dtype}; return uint8 (0 to 255), or give their 'scale'.")
    else:
        scale = 1 if scale is None else scale
        inputs = inputs.astype(np.float32)
        bad = np.argwhere(np.isinf(inputs) if missing else ~np.isfinite(inputs))
        if len(bad):
            record, *cell = bad[0].tolist()
            place = f"column '{names[cell[0]]}'" if kind == "table" else f"cell {tuple(cell)}"
            raise ShapelineError(
                f"{where}: record {record}, {place} is {inputs[tuple(bad[0])]}; "
                f"every value must be a finite number ({len(np.unique(bad[:, 0]))} record(s) are not)."
            )
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not scale > 0:
        raise ShapelineError(f"{where}: scale {scale!r} is not a positive number.")
    if kind == "table":
        return inputs, scale, 0
    flat = inputs.reshape(len(inputs), -1)
    odd = int(((flat.min(axis=1) < 0) | (flat.max(axis=1) > scale)).sum())
    if odd:
        log.warning("%s: %d image(s) leave [0, 1] (after division by %s)", where, odd, scale)
    return inputs, scale, odd


def _targets(where: str, records: dict) -> np.ndarray:
    """The numbers to predict of a regression, (n,) float64."""
    if records.get("class_names") is not None:
        raise ShapelineError(f"{where}: returned 'class_names', which do not go with task 'regression'.")
    targets = np.asarray(records["labels"])
    if targets.ndim != 1 or targets.dtype.kind not in "buif":
        raise ShapelineError(
            f"{where}: labels of shape {targets.shape} and type {targets.dtype}; a regression wants numbers, (n,)."
        )
    targets = targets.astype(np.float64)
    if not np.isfinite(targets).all():
        record = int(np.argmin(np.isfinite(targets)))
        raise ShapelineError(f"{where}: record {record} has the label {targets[record]}; it must be a finite number.")
    if len(targets) and (targets == targets[0]).all():
        raise ShapelineError(f"{where}: all labels are {targets[0]:g}, so there is nothing to predict.")
    return targets


def _labels(where: str, labels: object, class_names: Iterable | None, entry: Source | None) -> tuple:
    """Labels as class indices (n,) int64, and the names of the classes."""
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ShapelineError(f"{where}: labels of shape {labels.shape}; they must be one per record, (n,).")
    if class_names is None and entry:
        class_names = entry.classes
    names = None if class_names is None else [str(name) for name in class_names]
    if names is not None and len(set(names)) != len(names):
        raise ShapelineError(f"{where}: class_names must differ from each other.")
    if labels.dtype.kind in "OUST":
        texts = [str(label) for label in labels]
        names = sorted(set(texts)) if names is None else names
        index = {name: position for position, name in enumerate(names)}
        for record, text in enumerate(texts):
            if text not in index:
                raise ShapelineError(f"{where}: record {record} has the label '{text}'.{nearest(text, names)}")
        return np.array([index[text] for text in texts], np.int64), names
    if labels.dtype.kind not in "buif":
        raise ShapelineError(f"{where}: labels of type {labels.dtype}; they must be class indices or names.")
    n_classes = len(names) if names is not None else None
    finite = np.isfinite(labels)
    whole = finite & (np.where(finite, labels, 0) == np.floor(np.where(finite, labels, 0)))
    wrong = ~whole | (labels < 0) | (labels >= (np.inf if n_classes is None else n_classes))
    if wrong.any():
        record = int(np.argmax(wrong))
        allowed = "class indices 0, 1, 2, ..." if n_classes is None else f"class indices 0 to {n_classes - 1}"
        hint = ' Numbers to predict need "task": "regression".' if finite.all() and not whole.all() else ""
        raise ShapelineError(f"{where}: record {record} has the label {labels[record]}; labels are {allowed}.{hint}")
    labels = labels.astype(np.int64)
    return labels, names if names is not None else [str(index) for index in range(labels.max(initial=-1) + 1)]


def _split(where: str, split: object, n: int) -> np.ndarray | None:
    """The source's own split as (n,) uint8, from indices or names of PARTS; None when it has none."""
    if split is None:
        return None
    split = np.asarray(split)
    if split.shape != (n,):
        raise ShapelineError(f"{where}: split of shape {split.shape} for {n} records.")
    known = np.array(PARTS) if split.dtype.kind in "OUST" else np.arange(len(PARTS))
    matches = split.astype(known.dtype if split.dtype.kind in "OUST" else split.dtype)[:, None] == known
    if not matches.any(axis=1).all():
        record = int(np.argmin(matches.any(axis=1)))
        raise ShapelineError(
            f"{where}: record {record} has the split {split[record]!s}; write 0 train, 1 validation, 2 test."
        )
    return matches.argmax(axis=1).astype(np.uint8)


def _held_out(labels: np.ndarray, candidates: np.ndarray, fraction: float, seed: int, part: str) -> np.ndarray:
    """Indices of a stratified draw of `fraction` of the candidates.

    Each class has its own draw, seeded by its original index, so a record is in the same part whichever other classes
    are chosen. A class of two or more keeps at least one record on either side.
    """
    held_out = [np.empty(0, np.int64)]
    for label in np.unique(labels[candidates]):
        members = np.flatnonzero(candidates & (labels == label))
        count = int(fraction * len(members) + 0.5)
        if fraction > 0 and len(members) >= 2:
            count = min(max(count, 1), len(members) - 1)
        generator = np.random.default_rng(seed_of("split", seed, part, int(label)))
        held_out.append(generator.permutation(members)[:count])
    return np.concatenate(held_out)


def _counts(
    where: str, names: list[str], labels: np.ndarray, split: np.ndarray, own_split: bool = False
) -> dict[str, dict[str, int]]:
    """Records per part and class; a class without training records and an empty test part are errors.

    Without classes, which a regression has none of, all records count as one. own_split: a user's function says which
    records are for training; it may have none of a class, for a model that is trained on other data.
    """
    regression = not names
    if regression:
        names, labels = ["all"], np.zeros(len(labels), np.int64)
    counts = {
        part: {name: int(((split == index) & (labels == label)).sum()) for label, name in enumerate(names)}
        for index, part in enumerate(PARTS)
    }
    for name in names:
        if not counts["train"][name] and not (own_split and any(counts["train"].values())):
            total = sum(counts[part][name] for part in PARTS)
            have = f"{total} record(s), none of them in the training part" if total else "no record"
            if regression:
                raise ShapelineError(f"{where}: the training part is empty; lower 'test'.")
            raise ShapelineError(f"{where}: class '{name}' has {have}; choose others with 'classes', or lower 'test'.")
    if not sum(counts["test"].values()):
        raise ShapelineError(f"{where}: the test part is empty, so there is nothing to explain.")
    return counts


def _write(
    folder: Path, arrays: dict[str, np.ndarray], card: dict, documents: dict | None = None, marked: dict | None = None
) -> None:
    """Write all files under temporary names and rename them, so that a killed job leaves nothing half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    array_file, card_file, document_file = folder / "arrays.npz", folder / "card.json", folder / "documents.parquet"
    truth_file = folder / regions.FILE
    array_part, card_part, document_part, truth_part = (
        file.with_name(file.name + ".part") for file in (array_file, card_file, document_file, truth_file)
    )
    try:
        with open(array_part, "wb") as stream:
            np.savez(stream, **arrays)
        if documents is not None:
            import pyarrow.parquet

            # Small row groups, in the order of the ids, so that a few documents are read without the others.
            pyarrow.parquet.write_table(pyarrow.table(documents), document_part, row_group_size=10_000)
        if marked is not None:
            with open(truth_part, "wb") as stream:
                np.savez(stream, **marked)
        card_part.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        # Without the old card, a kill between the renames can never pair it with the new arrays.
        card_file.unlink(missing_ok=True)
        document_file.unlink(missing_ok=True)
        truth_file.unlink(missing_ok=True)
        os.replace(array_part, array_file)
        if marked is not None:
            os.replace(truth_part, truth_file)
        if documents is not None:
            os.replace(document_part, document_file)
        os.replace(card_part, card_file)
    except OSError as error:
        raise ShapelineError(f"prepared dataset {folder}: cannot be written ({error.strerror or error}).") from error
    finally:
        for part in (array_part, card_part, document_part, truth_part):
            part.unlink(missing_ok=True)
