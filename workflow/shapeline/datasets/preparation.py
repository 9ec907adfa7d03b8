"""Preparation of datasets of every source, whose `read(paths)` returns the same dictionary as a user's function."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shapeline.datasets import folders, images, text, tokenizer
from shapeline.datasets.checks import (
    JobDataset,
    choose_classes,
    read_entry,
    refuse,
    refuse_classes,
    refuse_text_settings,
)
from shapeline.datasets.entries import TEXT
from shapeline.datasets.loading import NAN, TABLE
from shapeline.datasets.records import check_records, check_texts, read_official, read_own
from shapeline.datasets.registry import Source, adapt_to_task, find_source
from shapeline.datasets.sources import PARTS, TEST, TRAIN, VALIDATION, names_function
from shapeline.errors import ShapelineError
from shapeline.files import run_checks
from shapeline.seeds import digest, seed_of

if TYPE_CHECKING:
    import pandas as pd

RARE_PATTERN = 4  # records with the same labels, below which they may be missing in a part


def prepare(source: str, settings: dict, raw_files: Iterable[str | os.PathLike], folder: str | os.PathLike) -> dict:
    """Read a source, select its classes, split it, write arrays.npz, card.json and more to `folder`; return the card.

    Further files: table.parquet of a user's table, documents.parquet of texts (with ground-truth words if known; the
    vocabulary is of the training part) and truth.npz. raw_files, but not settings["path"], are verified by checksum.
    The same arguments give the same bytes. Raises ShapelineError, one line.
    """
    dataset, is_custom = read_entry(source, settings), names_function(source)
    entry = None if is_custom else adapt_to_task(find_source(source), dataset.task)
    records = read_own(source, dataset.path) if is_custom else read_official(entry, dataset, raw_files)
    where = source if dataset.path is None else f"{source} ({dataset.path})"
    if records.get("texts") is not None:
        content = check_texts(where, records, entry, dataset)
    else:
        content = check_records(where, records, entry)
        refuse_text_settings(dataset, content["kind"])
    split, has_split = _split_records(content, dataset)
    names, kept, labels = _select_classes(content, split, dataset, entry)
    inputs, described, documents = _describe_inputs(content, kept, split, entry)
    marked = content.get("truth") and images.arrays(content["truth"], kept, content["ids"][kept])
    if marked:
        described |= images.describe_regions(marked)
        for name, number in content["truth"]["odd"].items():  # added to those that the reader counted
            content["odd"][name] = content["odd"].get(name, 0) + number
    arrays = {"inputs": inputs, "labels": labels[kept], "split": split[kept], "ids": content["ids"][kept]}
    if "tokenizer" in described:
        arrays["owners"] = tokenizer.pad_documents(content["tokens"], arrays["ids"])[1]
    counts = _count_records(where, names, arrays["labels"], arrays["split"], has_split and is_custom)
    skipped = int((labels < 0).sum()) if names and labels.ndim == 1 else 0
    card = {
        "name": Path(folder).name,
        "source": source,
        **_describe_dataset(content, names, arrays, counts, entry),
        **({"subset": content["subset"]} if content["subset"] else {}),
        "records": {"read": content["read"], "skipped_other_classes": skipped, **content["odd"]},
        "settings": dict(settings),
        **described,
    }
    frame = content.get("frame")
    _write(Path(folder), arrays, card, documents, marked, None if frame is None else frame.iloc[kept])
    return card


def _split_records(content: dict, dataset: JobDataset) -> tuple[np.ndarray, bool]:
    """Return the part of every record, sampled by seed unless the source has a split; and whether it has one."""
    labels, split = content["labels"], content["split"]
    strata = labels
    if labels.ndim == 2:  # equal patterns of labels are split alike, all rare ones together
        _, pattern, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
        strata = np.where(counts[pattern.reshape(-1)] < RARE_PATTERN, -1, pattern.reshape(-1))
    if content.get("task") == "regression":
        strata = np.zeros(len(labels), np.int64)
    if dataset.split == "drawn":
        split = None
    has_split = split is not None
    if split is None:
        split = np.zeros(len(labels), np.uint8)
        split[_hold_out(strata, split == TRAIN, dataset.test, dataset.seed, "test")] = TEST
    else:
        refuse(dataset, ["test"], f"source '{dataset.source}' returns its own split, which split: drawn replaces")
    if not (split == VALIDATION).any():
        split[_hold_out(strata, split == TRAIN, dataset.validation, dataset.seed, "validation")] = VALIDATION
    else:
        refuse(dataset, ["validation"], f"source '{dataset.source}' returns its own validation part")
    return split, has_split


def _select_classes(
    content: dict, split: np.ndarray, dataset: JobDataset, entry: Source | None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the names of the chosen classes, the records kept, and labels as numbers of these, -1 of another."""
    labels = content["labels"]
    every = np.arange(len(labels))
    if content.get("task") == "regression":
        refuse_classes(dataset)
        return [], every, labels
    names = content["class_names"]
    chosen = choose_classes(dataset.source, names, dataset.classes)
    kept_names = [names[index] for index in chosen]
    if chosen != sorted(chosen):
        content["source_classes"] = [names[index] for index in sorted(chosen)]
    if labels.ndim == 2:
        return kept_names, every, labels[:, chosen]
    relabelled = np.full(len(names), -1, np.int64)
    relabelled[chosen] = np.arange(len(chosen))
    kept = np.flatnonzero(relabelled[labels] >= 0)
    if entry and entry.balanced:
        unbalanced, kept = len(kept), _balance(labels, split, kept, dataset.seed)
        content["odd"]["left_out_to_balance"] = unbalanced - len(kept)
        content["notes"].append("each class sampled by seed to the size of the rarest, in each part")
    return kept_names, kept, relabelled[labels]


def _describe_inputs(
    content: dict, kept: np.ndarray, split: np.ndarray, entry: Source | None
) -> tuple[np.ndarray, dict, dict | None]:
    """Return the inputs of the kept records, what the card says of their kind, and the columns of documents.parquet."""
    if content["kind"] == "text":
        inputs, described, documents = _encode_documents(content, kept, split[kept] == TRAIN)
        described["synthetic"] = entry.synthetic if entry else None
        described["documents_digest"] = _documents_digest(documents)
        content["odd"]["truncated"] = int((content["tokens"].sizes[content["ids"][kept]] > inputs.shape[1]).sum())
        return inputs, described, documents
    # No copy if all records are selected, because large images fill the memory.
    inputs = content["inputs"] if len(kept) == len(content["inputs"]) else content["inputs"][kept]
    is_fixed = content["task"] == "regression" or content["labels"].ndim == 2
    described = {"task": content["task"]} if is_fixed else {}
    described |= {
        key: content[key]
        for key in ("notes", "categorical", "categories", "columns", "missing", "array", "source_classes")
        if content.get(key)
    }
    if not content["has_channels"]:  # the layout of the reader, which a function expects
        described["has_channels"] = False
    if entry and entry.synthetic:
        described["synthetic"] = True
    return inputs, described, None


def _documents_digest(documents: dict) -> str:
    """Return a digest of the documents and ground-truth words: jobs that read them have the card as their input."""
    hashed = hashlib.sha256()
    for document in documents["text"]:
        hashed.update(document.encode() + b"\0")
    for flags in documents.get("ground_truth_words", ()):
        hashed.update(flags.tobytes() + b"\2")
    return hashed.hexdigest()


def _describe_dataset(content: dict, names: list[str], arrays: dict, counts: dict, entry: Source | None) -> dict:
    """Return the entries of every dataset card: shape, classes and origin."""
    several = arrays["labels"].ndim == 2
    rows = {name: int((arrays["split"] == part).sum()) for part, name in enumerate(PARTS)}
    return {
        "kind": content["kind"],
        "input_shape": list(arrays["inputs"].shape[1:]),
        "classes": names,
        "counts": counts,
        **({"rows": rows} if several else {}),  # in addition to the counts of each label
        "scale": content["scale"],
        "feature_names": content["feature_names"],
        "groups": content["groups"],
        "licence": entry.licence if entry else "",
        "citation": entry.citation if entry else "",
        "urls": [url for file in entry.files for url in file.urls or (file.page,)] if entry else [],
    }


def _balance(labels: np.ndarray, split: np.ndarray, kept: np.ndarray, seed: int) -> np.ndarray:
    """Return a sample of the selected records in which all classes of a part are as frequent as its rarest."""
    samples = []
    for part, name in enumerate(PARTS):
        of_part = kept[split[kept] == part]
        members = {label: of_part[labels[of_part] == label] for label in np.unique(labels[kept]).tolist()}
        least = min(len(records) for records in members.values())
        for label, records in members.items():
            generator = np.random.default_rng(seed_of("balance", seed, name, label))
            samples.append(generator.permutation(records)[:least])
    return np.sort(np.concatenate(samples))


def _encode_documents(content: dict, kept: np.ndarray, training: np.ndarray) -> tuple[np.ndarray, dict, dict]:
    """Return ids (n, length) of the selected documents, their card entries, and columns of documents.parquet."""
    tokens, rows = content["tokens"], content["ids"][kept]
    if isinstance(tokens, tokenizer.Documents):
        described = _describe_tokens(tokens, rows, content)
        return tokenizer.pad_documents(tokens, rows)[0], described, _list_texts(content, rows)
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
    documents = _list_texts(content, rows)
    if content["ground_truth_words"] is not None:
        # Truncated as the words: the last ones of a long document, or those of its first characters.
        ground_truth_words = [content["ground_truth_words"][row] for row in rows]
        if words:
            documents["ground_truth_words"] = [flags[-settings.length :] for flags in ground_truth_words]
        else:
            counts = [len(text.split_words(document, "character", settings.length)) for document in documents["text"]]
            documents["ground_truth_words"] = [flags[:n] for flags, n in zip(ground_truth_words, counts, strict=True)]
    return inputs, described, documents


def _list_texts(content: dict, rows: np.ndarray) -> dict:
    return {"id": rows, "text": [content["texts"][row] for row in rows]}


def _describe_tokens(tokens: tokenizer.Documents, rows: np.ndarray, content: dict) -> dict:
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
        **({"mask_id": own.mask} if own.source == TEXT or folders.names_folder(own.source) else {}),
        **({"separator_id": own.separator} if any(tokens.seconds[row] is not None for row in rows) else {}),
        "space_id": None,
        "mean_words": float(tokens.n_words[rows].mean()) if len(rows) else 0.0,
        "notes": content["notes"],
        "vocabulary_digest": digest([own.source, own.pad, own.vocabulary]),
        "vocabulary": own.vocabulary,
    }


def _hold_out(labels: np.ndarray, candidates: np.ndarray, fraction: float | int, seed: int, part: str) -> np.ndarray:
    """Return a stratified sample of `fraction` of the candidates, or so many per class, by each class's own seed.

    A record's part is thus independent of the selected classes. A class of two or more has one on either side.
    """
    held_out = [np.empty(0, np.int64)]
    for label in np.unique(labels[candidates]):
        members = np.flatnonzero(candidates & (labels == label))
        count = int(fraction * len(members) + 0.5) if fraction < 1 else fraction
        if count >= len(members) > 1 and fraction >= 1:
            raise ShapelineError(
                f"dataset key '{part}': {fraction} records of each class, and one has {len(members)}; ask for fewer."
            )
        if fraction > 0 and len(members) >= 2:
            count = min(max(count, 1), len(members) - 1)
        generator = np.random.default_rng(seed_of("split", seed, part, int(label)))
        held_out.append(generator.permutation(members)[:count])
    return np.concatenate(held_out)


def _count_records(
    where: str, names: list[str], labels: np.ndarray, split: np.ndarray, own_split: bool = False
) -> dict[str, dict[str, int]]:
    """Return records per part and class. Raises ShapelineError for a class without training records or no test part.

    With several labels, the records of each. own_split: of a user's function, which may have none of a class.
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
        raise ShapelineError(
            f"{where}: the test part is empty, so there is nothing to explain; give it records, or raise 'test'."
        )
    return counts


def _write(
    folder: Path,
    arrays: dict[str, np.ndarray],
    card: dict,
    documents: dict | None = None,
    marked: dict | None = None,
    frame: "pd.DataFrame | None" = None,
) -> None:
    """Write all files under temporary names and rename them; frame: a user's rows with their types."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"arrays.npz": arrays, TABLE: frame, images.FILE: marked, "documents.parquet": documents}
    contents = {name: content for name, content in contents.items() if content is not None}
    parts = {folder / name: folder / f"{name}.part" for name in (*contents, "card.json")}  # the card is the last
    try:
        for name, content in contents.items():
            _write_part(folder / f"{name}.part", content)
        if frame is not None:
            card["table_digest"] = hashlib.sha256((folder / f"{TABLE}.part").read_bytes()).hexdigest()
        text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
        (folder / "card.json.part").write_text(text, encoding="utf-8")
        run_checks()
        # Without the old card, a kill between the renames can never pair it with the new arrays.
        for name in ("card.json", "documents.parquet", images.FILE, TABLE):
            (folder / name).unlink(missing_ok=True)
        for file, part in parts.items():
            os.replace(part, file)
    except OSError as error:
        raise ShapelineError(
            f"prepared dataset {folder}: cannot be written ({error.strerror or error}); make the folder writable."
        ) from error
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _write_part(part: Path, content: "dict | pd.DataFrame") -> None:
    """Write arrays by name, the columns of documents, or a data frame."""
    if hasattr(content, "to_parquet"):
        frame = content.reset_index(drop=True)
        # Parquet has one null, which pandas 2 reads as None in object columns.
        missing = {name: cells[cells.isna()] for name, cells in frame.items() if cells.dtype == object}
        nan = [name for name, each in missing.items() if len(each) and all(isinstance(cell, float) for cell in each)]
        frame.attrs = {NAN: nan}
        frame.to_parquet(part)
    elif part.stem.endswith(".parquet"):
        import pyarrow.parquet

        # Small row groups in the order of the ids, so that a few documents can be read without the others.
        pyarrow.parquet.write_table(pyarrow.table(content), part, row_group_size=10_000)
    else:
        with open(part, "wb") as stream:
            np.savez(stream, **content)
