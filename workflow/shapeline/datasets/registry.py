"""Where data comes from: the table of sources, their official files, and a user's function in their place."""

import contextlib
import dataclasses
import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shapeline.datasets import text
from shapeline.errors import ShapelineError, nearest

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

_USED_BY_SSL = (
    *("age", "shooting victim", "battery or assault victim", "violent arrests"),
    *("gang affiliation", "narcotics arrests", "criminal trend", "weapon arrests"),
)
_NOT_USED_BY_SSL = ("is female", "race", "weapon in 10 years", "drug in 10 years", "on parole", "last contact")


@dataclass(frozen=True)
class RemoteFile:
    """An official file: name, addresses, checksum (md5 or sha256; None: any content); page: where a person gets it."""

    name: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    about: float = 0
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
        digest = file_digest(path, self.algorithm)
        if digest == self.checksum:
            return ""
        size = f" of {self.size:,}" if self.size is not None else ""
        return f"found {self.algorithm} {digest} ({path.stat().st_size:,}{size} bytes), expected {self.checksum}"


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from and what is in it, known before anything is read.

    official_test: the split is the source's own. optional: files that a local copy may lack. unpacked: what a folder
    holds that is the unpacked archive, or the name of the only file, which a path may then name. subsets: patterns of
    names of files with some of the rows, which a path may name in place of the official ones, or the folder that it
    names hold; synthetic: made here.
    unit, vocabulary: of a text, unless its entry says else. task: "regression" where the labels are numbers, and then
    there are no classes; "multilabel" where a record may have several. labels: those that it then has, of a source
    whose entry may ask for that. balanced: of each part as many records of every chosen class as of its rarest are
    kept, drawn by seed. truth: "masks" or "boxes" where it is known where in an image its class is. count: how many
    records are made where an entry does not say; None where an entry cannot say. records: as published. words: of a
    document on average, that its length keeps. ground_truth_words: whether the words that decide a class are known.
    local: the records are a user's, at the entry's path; input_shape and classes are empty where only they tell.
    reader: the name of the function in the module.
    """

    name: str
    kind: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    module: str
    files: tuple[RemoteFile, ...] = ()
    licence: str = ""
    citation: str = ""
    feature_names: tuple[str, ...] = ()
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    official_test: bool = False
    optional: tuple[str, ...] = ()
    unpacked: tuple[str, ...] = ()
    subsets: dict[str, str] = field(default_factory=dict)
    synthetic: bool = False
    unit: str | None = None
    vocabulary: int = text.VOCABULARY
    task: str = "classification"
    labels: tuple[str, ...] = ()
    balanced: bool = False
    truth: str | None = None
    count: int | None = None
    records: int = 0
    words: int = 0
    ground_truth_words: bool = False
    local: bool = False
    reader: str = "read"

    @property
    def read(self) -> Callable[..., dict]:
        """The function of its module that reads its files; imported when it is needed."""
        return getattr(importlib.import_module(self.module), self.reader)


def source_named(name: str) -> Source:
    """The source of that name in SOURCES; an unknown name raises a ShapelineError with the nearest one."""
    if name not in SOURCES:
        raise ShapelineError(
            f"source '{name}': unknown.{nearest(name, SOURCES)} Or name your own as path/to/file.py:function."
        )
    return SOURCES[name]


def is_published(name: str | None) -> bool:
    """Whether a dataset's source is one of SOURCES whose records are not a user's."""
    source = SOURCES.get(name)
    return source is not None and not source.local


def source_for(settings: dict) -> Source | None:
    """The source of a dataset entry as its keys and its file's header tell; None for a user's function."""
    entry = SOURCES.get(settings["source"])
    if entry is None or not (entry.local and entry.kind == "table"):
        return entry and adapt_to_task(entry, settings)
    names = ()
    with contextlib.suppress(ShapelineError):  # reported by check()
        names = columns_of(settings) or ()
    return dataclasses.replace(
        entry, task=settings.get("task") or entry.task, feature_names=names, input_shape=(len(names),) if names else ()
    )


def adapt_to_task(entry: Source, settings: dict) -> Source:
    """The source with its labels in place of its classes, where a dataset entry asks for several labels per record."""
    if entry.labels and settings.get("task") == "multilabel":
        return dataclasses.replace(entry, task="multilabel", classes=entry.labels)
    return entry


def columns_of(settings: dict) -> tuple[str, ...] | None:
    # By name: were it imported, an edit of that file would run the jobs of all datasets again.
    module = importlib.import_module(SOURCES["table_file"].module)
    return module.columns_of(settings) if settings.get("path") else None


def remote_files(source: str) -> tuple[RemoteFile, ...]:
    """The official files of a source, or of "weights"; an unknown source is a ShapelineError."""
    return tuple(WEIGHTS.values()) if source == "weights" else source_named(source).files


def file_digest(path: Path, algorithm: str) -> str:
    """The hexadecimal md5 or sha256 of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def _mnist_file(name: str, md5: str, size: int) -> RemoteFile:
    hosts = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return RemoteFile(name, tuple(host + name for host in hosts), md5=md5, size=size)


def _agnews_file(name: str, md5: str, size: int | None = None, about: float = 0) -> RemoteFile:
    host = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
    return RemoteFile(name, (host + name,), md5=md5, size=size, about=about)


# What training may start from, by the name that a model's `weights` gives it; fetched as if of a source "weights".
WEIGHTS = {
    "imagenet": RemoteFile(
        "resnet18-f37072fd.pth",
        ("https://download.pytorch.org/models/resnet18-f37072fd.pth",),
        about=47e6,
        sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    )
}


SOURCES: dict[str, Source] = {
    "digits": Source(
        name="digits",
        kind="image",
        input_shape=(1, 8, 8),
        classes=_DIGITS,
        module="shapeline.datasets.scikit_learn",
        reader="read_digits",
        records=1797,
        licence="CC BY 4.0 (UCI); comes with scikit-learn",
        citation="E. Alpaydin, C. Kaynak (1998). Optical Recognition of Handwritten Digits. "
        "UCI Machine Learning Repository.",
    ),
    "breast_cancer": Source(
        name="breast_cancer",
        kind="table",
        input_shape=(30,),
        classes=("malignant", "benign"),
        module="shapeline.datasets.scikit_learn",
        reader="read_breast_cancer",
        records=569,
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
        module="shapeline.datasets.scikit_learn",
        reader="read_diabetes",
        records=442,
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
        records=70_000,
        licence="CC BY-SA 3.0",
        citation="Y. LeCun, C. Cortes, C. J. C. Burges (1998). The MNIST database of handwritten digits.",
        official_test=True,
    ),
    "mnist_small": Source(
        name="mnist_small",
        kind="image",
        input_shape=(1, 28, 28),
        classes=("3", "8"),
        module="shapeline.datasets.mnist_small",
        records=400,
        licence="CC BY-SA 3.0; 400 of MNIST's digits, which come with this package",
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
        records=60_000,
        licence="none stated; cite Krizhevsky 2009",
        citation="A. Krizhevsky (2009). Learning Multiple Layers of Features from Tiny Images. University of Toronto.",
        official_test=True,
        unpacked=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        subsets={"training": "*train*.bin*", "test": "*test*.bin*"},
    ),
    "image_folder": Source(
        name="image_folder",
        kind="image",
        input_shape=(),
        classes=(),
        module="shapeline.datasets.image_folder",
        local=True,
    ),
    "table_file": Source(
        name="table_file", kind="table", input_shape=(), classes=(), module="shapeline.datasets.table_file", local=True
    ),
    "text_file": Source(
        name="text_file",
        kind="text",
        input_shape=(400,),
        classes=(),
        module="shapeline.datasets.text_file",
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
                about=301e6,
                md5="f8428a1edbd21e88f42c73edd2a14f95",
                page="https://www.kaggle.com/c/challenges-in-representation-learning-facial-expression-recognition-"
                "challenge/data",
            ),
        ),
        module="shapeline.datasets.fer",
        records=12_154,
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
                about=130e6,
            ),
        ),
        module="shapeline.datasets.risk_scores",
        reader="read_ssl",
        records=398_582,
        licence="terms of use of the City of Chicago",
        citation="Chicago Police Department (2017). Strategic Subject List - Historical. Chicago Data Portal.",
        feature_names=(*_USED_BY_SSL, *_NOT_USED_BY_SSL),
        groups={"used by the algorithm": _USED_BY_SSL, "not used": _NOT_USED_BY_SSL},
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
                about=3e6,
            ),
        ),
        module="shapeline.datasets.risk_scores",
        reader="read_compas",
        records=6172,
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
        module="shapeline.datasets.corpora",
        reader="read_imdb",
        records=50_000,
        words=230,
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
            _agnews_file("train.csv", "b1a00f826fdfbd249f79597b59e1dc12", about=30e6),
            _agnews_file("test.csv", "d52ea96a97a2d943681189a97654912d", 1_857_427),
        ),
        module="shapeline.datasets.corpora",
        reader="read_agnews",
        records=127_600,
        words=43,
        licence="non-commercial use (AG's corpus)",
        citation=f"{_ZHANG} The corpus: A. Gulli (2004), AG's corpus of news articles.",
        official_test=True,
        optional=("train.csv",),
        subsets={"train.csv": "*.csv*"},
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
        module="shapeline.datasets.corpora",
        reader="read_yahoo",
        records=1_460_000,
        words=90,
        licence="research use (Yahoo! Webscope)",
        citation=_ZHANG,
        official_test=True,
        unpacked=("train.csv", "test.csv"),
        subsets={"training": "*train*.csv", "test": "*test*.csv"},
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
        module="shapeline.datasets.corpora",
        reader="read_polarity",
        records=10_662,
        words=20,
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
        module="shapeline.datasets.reviews",
        records=3000,
        words=12,
        licence="MIT, as this package",
        citation="Synthetic: made by shapeline.datasets.reviews; no person wrote these reviews.",
        synthetic=True,
        ground_truth_words=True,
        unit="word",
        vocabulary=500,
    ),
    "crosses": Source(
        name="crosses",
        kind="image",
        input_shape=(3, 100, 120),
        classes=("no cross", "cross"),
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
        labels=("trophozoite", "ring"),
        files=(RemoteFile("malaria.zip", ("https://data.broadinstitute.org/bbbc/BBBC041/malaria.zip",), about=4.4e9),),
        module="shapeline.datasets.malaria",
        records=1364,
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
                about=4.7e9,
                page="https://www.kaggle.com/datasets/mbornoe/lisa-traffic-light-dataset",
            ),
        ),
        module="shapeline.datasets.lisa",
        records=20_248,
        licence="CC BY-NC-SA 4.0",
        citation="M. B. Jensen, M. P. Philipsen, A. Møgelmose, T. B. Moeslund, M. M. Trivedi (2016). Vision for "
        "Looking at Traffic Lights: Issues, Survey, and Perspectives. IEEE Transactions on Intelligent Transportation "
        "Systems 17(7).",
        official_test=True,
        unpacked=("Annotations",),
        truth="boxes",
    ),
}
