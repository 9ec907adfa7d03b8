"""Datasets: prepare() and load() for every source, whatever it is.

A source module (`shapeline.datasets.mnist`, ...) has one function, `read(paths)`, that returns the same dictionary as a
user's own function; everything after it is the same for all: what a configuration says (checks), what a reader gives
(records), and here classes, splits and files. The table of sources is in `sources`. These modules need only numpy: the
configuration imports them before any job.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shapeline.datasets import regions, text, tokenizer
from shapeline.datasets.checks import (  # noqa: F401 (some stand here for others)
    check,
    chosen_classes,
    class_index,
    input_shape,
    refuse_classes,
    refuse_text_settings,
    text_settings,
    unit_of,
)
from shapeline.datasets.records import checked, checked_texts, local_files, read_official, read_own  # noqa: F401
from shapeline.datasets.regions import objects, truth  # noqa: F401
from shapeline.datasets.sources import (  # noqa: F401
    PARTS,
    SOURCES,
    TEST,
    TRAIN,
    VALIDATION,
    WEIGHTS,
    RemoteFile,
    Source,
    expand,
    file_digest,
    is_address,
    is_own,
    of_task,
    remote_files,
    source_for,
    source_named,
    user_function,
)
from shapeline.datasets.stored import Pictures, mapped
from shapeline.errors import ShapelineError, nearest
from shapeline.seeds import digest, seed_of

VALIDATION_FRACTION = 0.1
TEST_FRACTION = 0.3
RARE = 4  # records with the same labels, of which too few could be in every part


@dataclass(frozen=True, eq=False)
class Dataset:
    """A prepared dataset in memory.

    inputs: (n, *input_shape) float32, images in [0, 1] once their rows are taken (see Pictures); of texts int32 token
    ids, right-padded with 0, or the tokenizer's pad. labels: (n,) int64, of a regression float64, of several labels a
    record (n, labels) uint8, 1 where it has them; split: (n,) uint8, 0 train, 1 validation, 2 test; ids: (n,) int64,
    position in the source; card: the dictionary of card.json. owners: of texts with a tokenizer of one's own
    (n, length) int32, of each token the word that it is part of, -1 of padding and special ones.
    """

    inputs: np.ndarray | Pictures
    labels: np.ndarray
    split: np.ndarray
    ids: np.ndarray
    card: dict
    owners: np.ndarray | None = None

    def part(self, name: str) -> "Dataset":
        """The records of one part: "train", "validation" or "test"."""
        if name not in PARTS:
            raise ShapelineError(f"part '{name}' of a dataset: unknown.{nearest(name, PARTS)}")
        rows = np.flatnonzero(self.split == PARTS.index(name))
        return Dataset(
            self.inputs[rows],
            self.labels[rows],
            self.split[rows],
            self.ids[rows],
            self.card,
            None if self.owners is None else self.owners[rows],
        )


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
    entry = None if own else of_task(source_named(source), settings)
    records = read_own(source, settings) if own else read_official(entry, settings, raw_files)
    where = f"{source} ({settings['path']})" if settings.get("path") is not None else source
    if records.get("texts") is not None:
        content = checked_texts(where, records, entry, settings)
    else:
        content = checked(where, records, entry)
        refuse_text_settings(source, content["kind"], settings)
    labels, split = content["labels"], content["split"]
    regression = content.get("task") == "regression"
    several = labels.ndim == 2
    strata = np.zeros(len(labels), np.int64) if regression else _patterns(labels) if several else labels
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
        refuse_classes(source, settings)
        class_names, kept = [], np.arange(len(labels))
    elif several:
        chosen = chosen_classes(source, content["class_names"], settings.get("classes"))
        class_names, kept = [content["class_names"][index] for index in chosen], np.arange(len(labels))
        labels = labels[:, chosen]
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
        described = {"task": content["task"]} if regression or several else {}
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
    if "tokenizer" in described:
        arrays["owners"] = tokenizer.padded(content["tokens"], arrays["ids"])[1]
    card = {
        "name": Path(folder).name,
        "source": source,
        "kind": content["kind"],
        "input_shape": list(arrays["inputs"].shape[1:]),
        "classes": class_names,
        "counts": _counts(where, class_names, arrays["labels"], arrays["split"], own_split),
        **({"rows": _rows(arrays["split"])} if several else {}),  # which the counts of each label do not tell
        "scale": content["scale"],
        "feature_names": content["feature_names"],
        "groups": content["groups"],
        "licence": entry.licence if entry else "",
        "citation": entry.citation if entry else "",
        "urls": [url for file in entry.files for url in file.urls or (file.page,)] if entry else [],
        "records": {
            "read": content["read"],
            "skipped_other_classes": int((labels < 0).sum()) if class_names and not several else 0,
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
            labels, split, ids = (stored[key] for key in ("labels", "split", "ids"))
            inputs = mapped(folder / "arrays.npz", "inputs") if card["kind"] == "image" else stored["inputs"]
            owners = stored["owners"] if "owners" in stored.files else None
        rows = card.get("rows") or {part: sum(classes.values()) for part, classes in card["counts"].items()}
        counted = sum(rows.values())
        input_shape, scale, kind = card["input_shape"], card["scale"], card["kind"]
    except FileNotFoundError as error:
        raise ShapelineError(f"prepared dataset {folder}: {error.filename} is missing; {again}.") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ShapelineError(f"prepared dataset {folder}: damaged ({error}); {again}.") from error
    if list(inputs.shape[1:]) != input_shape or not len(inputs) == len(labels) == len(split) == counted:
        raise ShapelineError(f"prepared dataset {folder}: arrays.npz and card.json disagree; {again}.")
    if kind == "image":
        inputs = Pictures(inputs, scale)
    else:
        inputs = inputs.astype(np.int32 if kind == "text" else np.float32)
        if scale != 1:
            inputs /= np.float32(scale)
    return Dataset(inputs, labels, split, ids, card, owners)


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


def _encoded(content: dict, kept: np.ndarray, training: np.ndarray) -> tuple[np.ndarray, dict, dict]:
    """The ids (n, length) of the kept documents, what the card says of them, and the columns of documents.parquet."""
    tokens, rows = content["tokens"], content["ids"][kept]
    if isinstance(tokens, tokenizer.Documents):
        return tokenizer.padded(tokens, rows)[0], _own_tokens(tokens, rows, content), _texts(content, rows)
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
    documents = _texts(content, rows)
    if content["decisive"] is not None:
        # As the words are: the last ones of a long document, or those of its first characters.
        decisive = [content["decisive"][row] for row in rows]
        if words:
            documents["decisive"] = [flags[-settings.length :] for flags in decisive]
        else:
            n_left = [len(text.words_of(document, "character", settings.length)) for document in documents["text"]]
            documents["decisive"] = [flags[:n] for flags, n in zip(decisive, n_left, strict=True)]
    return inputs, described, documents


def _texts(content: dict, rows: np.ndarray) -> dict:
    return {"id": rows, "text": [content["texts"][row] for row in rows]}


def _own_tokens(tokens: tokenizer.Documents, rows: np.ndarray, content: dict) -> dict:
    """What the card says of documents by a tokenizer of one's own."""
    own = tokens.tokenizer
    if (tokens.n_words[rows] <= 1).all() and any(len(content["texts"][row].split()) > 1 for row in rows):
        raise ShapelineError(
            f"tokenizer '{own.source}': all tokens of a document are of one word, so there is nothing to tell apart; "
            "let encode return (ids, word_of_token)."
        )
    return {
        "unit": "word",
        "tokenizer": own.source,
        "absent_id": own.pad,
        "space_id": None,
        "mean_words": float(tokens.n_words[rows].mean()) if len(rows) else 0.0,
        "notes": content["notes"],
        "vocabulary_digest": digest([own.source, own.pad, own.vocabulary]),
        "vocabulary": own.vocabulary,
    }


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
    if card.get("tokenizer"):
        return tokenized([document], card).words[0]
    return text.words_of(document, card["unit"], card["input_shape"][0])


def encode(documents: list[str], card: dict) -> np.ndarray:
    """New documents as ids (n, length) int32 of a text dataset's vocabulary, cut and padded as its own are."""
    if card.get("tokenizer"):
        return tokenizer.padded(tokenized(documents, card))[0]
    settings = text.Settings(card["unit"], card["input_shape"][0], len(card["vocabulary"]))
    return text.encode_with(documents, settings, card["vocabulary"])


def tokenized(documents: list[str], card: dict) -> tokenizer.Documents:
    """New documents by the tokenizer of one's own that a dataset's card names."""
    return tokenizer.tokenize(documents, tokenizer.opened(card["tokenizer"]), card["input_shape"][0])


def owners(documents: list[str], card: dict) -> np.ndarray:
    """Of each token of new documents the word that it is part of, (n, length) int32, as in Dataset."""
    return tokenizer.padded(tokenized(documents, card))[1]


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


def _patterns(labels: np.ndarray) -> np.ndarray:
    """Which labels a record has, as a number (n,): records alike are split together, and so are those of rare kinds."""
    _, pattern, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    pattern = pattern.reshape(-1)
    return np.where(counts[pattern] < RARE, -1, pattern)


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

    Of several labels a record (n, labels): those that have each. Without classes, which a regression has none of, all
    records count as one. own_split: a user's function says which records are for training; it may have none of a class,
    for a model that is trained on other data.
    """
    regression = not names
    if regression:
        names, labels = ["all"], np.zeros(len(labels), np.int64)
    of_class = labels.T == 1 if labels.ndim == 2 else [labels == label for label in range(len(names))]
    counts = {
        part: {name: int(((split == index) & has).sum()) for name, has in zip(names, of_class, strict=True)}
        for index, part in enumerate(PARTS)
    }
    for name in names:
        if not counts["train"][name] and not (own_split and any(counts["train"].values())):
            total = sum(counts[part][name] for part in PARTS)
            have = f"{total} record(s), none of them in the training part" if total else "no record"
            if regression:
                raise ShapelineError(f"{where}: the training part is empty; lower 'test'.")
            raise ShapelineError(f"{where}: class '{name}' has {have}; choose others with 'classes', or lower 'test'.")
    if not (split == TEST).any():
        raise ShapelineError(f"{where}: the test part is empty, so there is nothing to explain.")
    return counts


def _rows(split: np.ndarray) -> dict[str, int]:
    """Records of each part."""
    return {name: int((split == part).sum()) for part, name in enumerate(PARTS)}


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
