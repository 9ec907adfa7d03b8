"""Published files of text, and of scores of people by authorities and courts, with their attributes.

Texts: AG News, the Large Movie Review Dataset, sentence polarity, Yahoo! Answers; scores: the Strategic Subject List,
COMPAS.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from shapeline.datasets import archive
from shapeline.datasets.archive import Limits, choose_limits
from shapeline.datasets.sources import TEST, TRAIN, describe_subset
from shapeline.errors import ShapelineError

if TYPE_CHECKING:
    import pandas as pd

FILES = {"train.csv": TRAIN, "test.csv": TEST}
AGNEWS_COLUMNS = ("class", "title", "description")
WORDS = {"train": TRAIN, "test": TEST}  # in the names of folders, and of files with other rows
IMDB_CLASSES = {"neg": 0, "pos": 1}
POLARITY_FILES = ("rt-polarity.neg", "rt-polarity.pos")
YAHOO_COLUMNS = ("class", "question title", "question content", "best answer")


def read_agnews(paths: dict[str, Path], limits: Limits | None = None) -> dict:
    """Return AG News (Zhang, Zhao & LeCun 2015): title and description joined, and the official split.

    Without train.csv no split, and a note of it; train.csv may be a file of some rows. Raises ShapelineError.
    """
    texts, labels, split = [], [], []
    for name, part in FILES.items():
        if name in paths:
            stream = io.BytesIO(archive.read_file(paths[name], choose_limits(limits)))
            for label, pieces in read_labelled_rows(str(paths[name]), stream, AGNEWS_COLUMNS, 4):
                texts.append(" ".join(filter(None, pieces)))
                labels.append(label)
                split.append(part)
    records = {"texts": texts, "labels": np.array(labels, np.int64), "split": np.array(split, np.uint8)}
    if "train.csv" not in paths:
        note = f"train.csv is absent: the {len(texts):,} rows of test.csv were split here"
        records |= {"split": None, "notes": [f"{note}, so this is not the official task"]}
    elif (path := paths["train.csv"]).name not in ("train.csv", "train.csv.gz"):
        records["subset"] = describe_subset({path.name: split.count(TRAIN)}, "train.csv")
    return records


def read_imdb(paths: dict[str, Path], limits: Limits | None = None) -> dict:
    """Return the labelled reviews of Maas et al. (2011) and the official split, breaks as spaces.

    Order: training first, negative first, then by name. paths: official file name -> .tar.gz or folder. Raises
    ShapelineError.
    """
    (path,) = paths.values()
    reviews = []
    with archive.open_files(path, lambda name: _locate_review(name) is not None, choose_limits(limits)) as files:
        for name, stream in files:
            document = stream.read().decode("utf-8", "surrogateescape")
            reviews.append((*_locate_review(name), document.replace("<br />", " ")))
    if not reviews:
        raise ShapelineError(f"{path}: holds no reviews; the layout is aclImdb/{{train,test}}/{{pos,neg}}/*.txt.")
    reviews.sort(key=lambda review: review[:3])
    split, labels, _, texts = zip(*reviews, strict=True)
    return {"texts": list(texts), "labels": np.array(labels), "split": np.array(split, np.uint8)}


def _locate_review(name: str) -> tuple[int, int, str] | None:
    """Return part, class and file name of a labelled review; None for other files."""
    part, folder, file = ([""] * 3 + name.split("/"))[-3:]
    known = part in WORDS and folder in IMDB_CLASSES and file.endswith(".txt")
    return (WORDS[part], IMDB_CLASSES[folder], file) if known else None


def read_polarity(paths: dict[str, Path], limits: Limits | None = None) -> dict:
    """Return sentences of Pang & Lee (2005), negative first, without a split; in UTF-8 or Windows-1252."""
    (path,) = paths.values()
    contents, texts, counts = archive.read_members(path, POLARITY_FILES, choose_limits(limits)), [], []
    for name in POLARITY_FILES:
        try:
            text = contents[name].decode("utf-8")
        except UnicodeDecodeError:
            text = contents[name].decode("cp1252", "surrogateescape")
        # Not splitlines(), which also breaks at characters inside a sentence.
        sentences = [line.strip() for line in text.split("\n")]
        texts += sentences if sentences[-1] else sentences[:-1]  # without what follows the last line's end
        counts.append(len(texts) - sum(counts))
    return {"texts": texts, "labels": np.repeat(np.arange(2), counts)}


def read_yahoo(paths: dict[str, Path], limits: Limits | None = None) -> dict:
    """Return Yahoo! Answers (Zhang, Zhao & LeCun 2015): title, question and answer joined, training first.

    paths: official file name -> .tgz, folder, or folder with files named "train" and "test". Raises ShapelineError.
    """
    (path,) = paths.values()
    is_subset = path.is_dir() and not any((path / name).exists() for name in FILES)
    parts = FILES
    if is_subset:
        parts = {file.name: part for word, part in WORDS.items() for file in sorted(path.glob(f"*{word}*.csv"))}
    records: dict[str, tuple[list[str], list[int]]] = {}
    allowed = choose_limits(limits, member=2000)  # training rows are 760 MB, and never in memory as one
    with archive.open_files(path, lambda name: name.split("/")[-1] in parts, allowed) as files:
        for name, stream in files:
            texts, labels = records.setdefault(name.split("/")[-1], ([], []))
            for label, pieces in read_labelled_rows(f"{path}, {name}", stream, YAHOO_COLUMNS, 10):
                document = " ".join(filter(None, pieces))
                texts.append(document.replace("\\n", " ").replace("<br />", " "))
                labels.append(label)
    for name in parts:
        if name not in records:
            raise ShapelineError(f"{path}: holds no {name}, which yahoo needs; get it again.")
    rows = {name: len(records[name][1]) for name in parts}
    return {
        "texts": [document for name in parts for document in records[name][0]],
        "labels": np.array([label for name in parts for label in records[name][1]], np.int64),
        "split": np.repeat(np.array(list(parts.values()), np.uint8), [*rows.values()]),
        **({"subset": describe_subset(rows, "yahoo_answers_csv.tgz")} if is_subset else {}),
    }


SSL_SCORE, PAROLE = "ssl_score", "parolee_i"
SSL_YES, SEX = {"y": 1, "n": 0}, {"f": 1, "m": 0, "x": 0}
# In decades. Table 4 of the paper has 1.8 for a band that ends below 2; the others are their middle.
SSL_AGES = {"less than 20": 1.8} | {f"{age}-{age + 10}": (age + 5) / 10 for age in range(20, 80, 10)}
# The order of Table 4. Race has codes, for it has no natural order.
SSL_ATTRIBUTES = {
    "age": ("predictor_rat_age_at_latest_arrest", SSL_AGES),
    "shooting victim": ("predictor_rat_victim_shooting_incidents", (0, np.inf)),
    "battery or assault victim": ("predictor_rat_victim_battery_or_assault", (0, np.inf)),
    "violent arrests": ("predictor_rat_arrests_violent_offenses", (0, np.inf)),
    "gang affiliation": ("predictor_rat_gang_affiliation", (0, 1)),
    "narcotics arrests": ("predictor_rat_narcotic_arrests", (0, np.inf)),
    "criminal trend": ("predictor_rat_trend_in_criminal_activity", (-np.inf, np.inf)),
    "weapon arrests": ("predictor_rat_uuw_arrests", (0, np.inf)),
    "is female": ("sex_code_cd", SEX),
    "race": ("race_code_cd", None),
    "weapon in 10 years": ("weapon_i", SSL_YES),
    "drug in 10 years": ("drug_i", SSL_YES),
    "on parole": (PAROLE, SSL_YES | {"": 0}),
    "last contact": ("latest_date", (1900, 2100)),
}


def read_ssl(paths: dict[str, Path]) -> dict:
    """Return the Strategic Subject List (Chicago Police 2017): 14 attributes (Sliwinski et al. 2019, §8.2) and scores.

    (n, 14), the age in decades, and 0 to 500; no split. Records that lack one are counted and left out. Raises
    ShapelineError.
    """
    (path,) = paths.values()
    names = (SSL_SCORE, *(column for column, _ in SSL_ATTRIBUTES.values()))
    table = read_columns(path, names)
    whole = np.all([table.texts[name] != "" for name in names if name != PAROLE], axis=0)
    table = table.rows(whole)
    inputs, categories = table.inputs(SSL_ATTRIBUTES)
    return {
        "inputs": inputs,
        "labels": table.numbers(SSL_SCORE, 0, 500),
        "categories": categories,
        "skipped": {"left_out_missing_value": int((~whole).sum())},
        "notes": [
            "age is the middle of its band in decades, 1.8 where it is below 20; no entry for parole means none",
            "the paper does not say what it did with missing values",
        ],
    }


COMPAS_ATTRIBUTES = {
    "age": ("age", (0, 150)),
    "priors": ("priors_count", (0, np.inf)),
    "juvenile felonies": ("juv_fel_count", (0, np.inf)),
    "juvenile misdemeanors": ("juv_misd_count", (0, np.inf)),
    "other juvenile offences": ("juv_other_count", (0, np.inf)),
    "days from screening to arrest": ("days_b_screening_arrest", (-30, 30)),
    "is female": ("sex", {"male": 0, "female": 1}),
    "race": ("race", None),
    "felony charge": ("c_charge_degree", {"m": 0, "f": 1}),
}
COMPAS_SCORE, DAYS = "decile_score", "days_b_screening_arrest"
COMPAS_WINDOW = 30  # days; an arrest further off may not be the one that the screening was for


def read_compas(paths: dict[str, Path]) -> dict:
    """Return COMPAS scores of Broward County (Angwin et al. 2016), filtered as ProPublica did: (n, 9), deciles 1 to 10.

    Those left out are counted by their first reason; no split. Raises ShapelineError with file and line.
    """
    (path,) = paths.values()
    names = [COMPAS_SCORE, *(column for column, _ in COMPAS_ATTRIBUTES.values()), "is_recid", "score_text"]
    table, skipped = read_columns(path, tuple(names)), {}
    for reason, fits in COMPAS_FILTERS.items():
        kept = fits(table)
        skipped[f"left_out_{reason}"] = int((~kept).sum())
        table = table.rows(kept)
    inputs, categories = table.inputs(COMPAS_ATTRIBUTES)
    return {
        "inputs": inputs,
        "labels": table.numbers(COMPAS_SCORE, 1, 10),
        "categories": categories,
        "skipped": skipped,
        "notes": [
            f"filtered as in ProPublica's analysis: {sum(skipped.values()):,} rows left out, by reason in records"
        ],
    }


COMPAS_FILTERS = {
    "no_arrest_date": lambda table: table.texts[DAYS] != "",
    "arrest_over_30_days_off": lambda table: np.abs(table.numbers(DAYS)) <= COMPAS_WINDOW,
    "recidivism_unknown": lambda table: table.texts["is_recid"] != "-1",
    "ordinary_traffic_offence": lambda table: table.texts["c_charge_degree"] != "O",
    "no_score": lambda table: ~np.isin(table.texts["score_text"], ("N/A", "")),
}


def read_labelled_rows(
    where: str, stream: BinaryIO, columns: tuple[str, ...], n_classes: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield (label from 0, texts) of a CSV file without header whose first column is the class; surrogates for bad
    bytes. Raises ShapelineError with file and line."""
    for line, row in archive.csv_lines(where, stream, "surrogateescape"):
        if not row:
            continue  # an empty line
        if len(row) != len(columns):
            raise ShapelineError(
                f"{where}, line {line}: {len(row)} column(s), expected {len(columns)} ({', '.join(columns)})"
                "; correct the line."
            )
        label = row[0].strip()
        if not (label.isdecimal() and 1 <= int(label) <= n_classes):
            raise ShapelineError(
                f"{where}, line {line}: the label '{row[0]}' is not one of 1 to {n_classes}; correct the line."
            )
        yield int(label) - 1, row[1:]


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of a file in memory. where: the file; texts: its cells by name, each row by its line."""

    where: str
    texts: "pd.DataFrame"

    def numbers(self, name: str, lowest: float = -np.inf, highest: float = np.inf) -> np.ndarray:
        """Return the column as (n,) float64; raise ShapelineError for what is no finite number in that range."""
        import pandas as pd

        values = pd.to_numeric(self.texts[name], errors="coerce").to_numpy(np.float64)
        limits = f" from {lowest:g} to {highest:g}" if np.isfinite(highest) else ""
        self._check(name, np.isfinite(values) & (values >= lowest) & (values <= highest), f"expected a number{limits}")
        return values

    def map_values(self, name: str, table: dict[str, float]) -> np.ndarray:
        """Return the column as (n,) float64, each cell by the table (cells in lower case); refuse others."""
        values = self.texts[name].str.lower().map(table).to_numpy(np.float64)
        self._check(name, ~np.isnan(values), "expected one of " + ", ".join(f"'{known}'" for known in table))
        return values

    def inputs(self, attributes: dict[str, tuple]) -> tuple[np.ndarray, dict[str, list[str]]]:
        """Return attributes (n, columns) and what codes stand for; attributes: name -> (column, table, limits)."""
        inputs, categories = [], {}
        for name, (column, holds) in attributes.items():
            if holds is None:
                codes = self.texts[column].astype("category").cat
                values, categories[name] = codes.codes.to_numpy(np.float64), codes.categories.tolist()
            else:
                values = self.map_values(column, holds) if isinstance(holds, dict) else self.numbers(column, *holds)
            inputs.append(values)
        return np.stack(inputs, axis=1), categories

    def rows(self, kept: np.ndarray) -> "Columns":
        """Return the rows where `kept` (n,) is true."""
        return Columns(self.where, self.texts[kept])

    def _check(self, name: str, fits: np.ndarray, expected: str) -> None:
        if not fits.all():
            cells = self.texts[name][~fits]
            raise ShapelineError(f"{self.where}, line {cells.index[0]}: {name} is '{cells.iloc[0]}'; {expected}.")


def read_columns(path: Path, names: tuple[str, ...]) -> Columns:
    """Return all rows of the named columns; raise ShapelineError as `read_named_rows`."""
    import pandas as pd

    with archive.open_binary(path) as stream:
        result = dict(archive.read_named_rows(str(path), stream, names))
    if not result:
        raise ShapelineError(f"{path}: holds a header and no rows; give a file with rows.")
    return Columns(str(path), pd.DataFrame(result.values(), index=result.keys(), columns=names, dtype="str"))
