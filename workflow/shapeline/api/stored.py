"""Explanations as score files: rows, and a description in the file's metadata."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import shapeline
from shapeline import scores
from shapeline.api.formatting import GAME, ONE
from shapeline.attribution.explanation import Explanation as Record
from shapeline.attribution.explanation import build_rows as tabulate
from shapeline.errors import ShapelineError
from shapeline.files import check_path
from shapeline.games.features import Features
from shapeline.games.references import KINDS
from shapeline.report.formatting import plain

PLAIN = ("kind", "method", "value", "reference", "rows")  # of the description, stored as JSON


def build_rows(explanation) -> pd.DataFrame:
    """Return score rows; an instance is identified by its position."""
    budget, sizes = explanation.about.method.get("budget"), [len(names) for names in explanation.about.names]
    budget = budget if isinstance(budget, int | float) else None
    return tabulate(explanation, np.arange(len(sizes)), 0, budget, sizes)


def write(explanation, path: str | Path) -> None:
    """Write the rows and their description."""
    about, n = explanation.about, len(explanation)
    largest, limits = np.nanmax(np.abs(explanation.scores), initial=0), np.finfo(np.float32)
    if largest > limits.max or 0 < largest < limits.tiny:
        raise ShapelineError(
            f"{path}: the largest score is {largest:.2g}, and files store numbers of {limits.tiny:.1g} to "
            f"{limits.max:.1g}; explain the model's output times a constant"
        )
    shared = explanation._shares_names()
    first = about.features[0] if n else None
    described = {
        "kind": first.kind if first else "feature",
        "shape": list(explanation.scores.shape[1:]) if shared or not n else None,
        "names": list(about.names[0]) if shared else [],
    }
    scores.write(
        path,
        build_rows(explanation),
        {
            "label": about.method.get("method"),
            "method": about.method.get("method"),
            "parameters": dict(about.method),
            "features": described,
            "reference": about.reference,
            "value": about.value,
            "versions": {"shapeline": shapeline.__version__},
            "about": {name: getattr(about, name) for name in PLAIN}
            | {
                "method": dict(about.method),
                "classes": list(about.classes),
                "instances": [_as_json(one) for one in about.instances],
                "inputs": [int(one) for one in about.inputs],
                "names": None if shared else [list(names) for names in about.names],
                "data": _pack(about.data),
                "features": _pack_features(about.features),
            },
        },
    )


def _as_json(label: Any) -> Any:
    """Return the label of an instance, as text where JSON cannot store it."""
    if isinstance(label, tuple):
        return [_as_json(one) for one in label]
    label = label.item() if isinstance(label, np.generic) else label
    return label if isinstance(label, str | int | float | None) else str(label)


def _as_label(stored: Any) -> Any:
    """Return the label of an instance that JSON stored, a tuple of an index of several levels as a tuple."""
    return tuple(map(_as_label, stored)) if isinstance(stored, list) else stored


def read(path: str | Path) -> tuple[Record, dict[str, Any]]:
    """Return the rows as a record, and their description."""
    if not (path := check_path("load", path)).exists():
        raise ShapelineError(f"{path}: there is no such file; give a file of save, or a score file or folder of a run")
    rows = scores.final(scores.read(path))
    rows = rows[rows["training_seed"] == rows["training_seed"].min()].reset_index(drop=True)  # of the model itself
    for column, several in (("repeat", "repeats"), ("randomised_layers", "randomised models")):
        if (number := rows[column].nunique()) > 1:
            raise ShapelineError(
                f"{path}: holds {number} {several}, and an Explanation is of one; scores.read has them all"
            )
    file = sorted(path.glob("*.parquet"))[0] if path.is_dir() else path
    metadata = scores.metadata(file)
    about, described = metadata.get("about"), metadata.get("features") or {}
    longest = max((len(row) for row in rows["scores"] if row is not None), default=0)
    n, shape = len(rows), described.get("shape") or [longest]
    if about is None:  # a score file of a run, whose data are elsewhere
        names = described.get("names") or [f"feature {index}" for index in range(longest)]
        reference, is_game = metadata.get("reference") or "", "game" in metadata.get("settings", {})
        given = {"kind": reference} if isinstance(reference, str) else reference
        given = {**KINDS.get(given["kind"], {}), **given}  # a configuration may leave out defaults
        kind, count = given.pop("kind").replace("_", " "), given.pop("rows", 1)
        about = {
            "method": metadata.get("parameters") or {},
            "value": GAME if is_game else metadata.get("value"),
            "reference": ", ".join(filter(None, (kind, f"{count} rows" * (count > 1), plain(given)))),
            "rows": count,
            "classes": tuple(metadata.get("classes") or [ONE] * is_game),
            "instances": rows["instance"].tolist(),
            "inputs": pd.factorize(rows["instance"])[0],  # labels of an instance are rows of it
            "features": [None] * n,
            "names": [tuple(names[: longest if row is None else len(row)]) for row in rows["scores"]],
        }
    else:
        shared, names = tuple(described["names"]), about["names"]
        about["names"] = [shared] * n if names is None else [tuple(each) for each in names]
        about |= {"data": _unpack(about["data"]), "features": _unpack_features(about["features"])}
        about["classes"], about["instances"] = tuple(about["classes"]), list(map(_as_label, about["instances"]))
    spread = None if rows["standard_error"].isna().all() else _stack_rows(rows["standard_error"], shape)
    most = longest * (longest - 1) // 2
    pairs, of_pairs = (
        None if rows[name].isna().all() else _stack_rows(rows[name], [most])
        for name in ("interactions", "interactions_standard_error")
    )
    columns = {name: rows[name].to_numpy() for name in ("evaluations", "seconds", "value_full", "value_empty")}
    words = {name: [one if isinstance(one, str) else None for one in rows[name]] for name in ("error", "warning")}
    details = [json.loads(one) if isinstance(one, str) else {} for one in rows["details"]]
    record = Record(
        _stack_rows(rows["scores"], shape), **columns, **words, target=rows["target"].to_numpy(np.int64),
        status=rows["status"].tolist(), details=details, standard_error=spread, interaction_values=pairs,
        interactions_standard_error=of_pairs,
    )  # fmt: skip
    return record, about


def _stack_rows(column: pd.Series, shape: list[int]) -> np.ndarray:
    """Return the lists of a column as (n, *shape), NaN where missing."""
    stacked = np.full((len(column), int(np.prod(shape))), np.nan)
    for row, given in zip(stacked, column, strict=True):
        if given is not None:
            row[: len(given)] = given
    return stacked.reshape(len(column), *shape)


def _pack(data: Any) -> Any:
    """Return a data frame or array as text, lists unchanged."""
    if data is None or isinstance(data, list):
        return data
    buffer = io.BytesIO()
    if isinstance(data, pd.DataFrame):
        _make_storable(data).to_parquet(buffer)
    else:
        np.save(buffer, data, allow_pickle=False)
    kind = "frame" if isinstance(data, pd.DataFrame) else "array"
    return {kind: base64.b64encode(buffer.getvalue()).decode()}


def _make_storable(data: pd.DataFrame) -> pd.DataFrame:
    """Return a data frame that Parquet can store: unsupported columns, their names and index become texts."""
    sparse = {name: dtype.subtype for name, dtype in data.dtypes.items() if isinstance(dtype, pd.SparseDtype)}
    storable = data.astype(sparse)
    if not _is_storable(pd.DataFrame(0, [0], data.columns)):
        storable.columns = list(map(str, storable.columns))
    if not _is_storable(storable.iloc[:, :0]):
        storable.index = storable.index.map(str)
    for index in range(storable.shape[1]):
        if not _is_storable(storable.iloc[:, [index]]):
            storable.isetitem(index, storable.iloc[:, index].map(str).astype(object))
    return storable


def _is_storable(data: pd.DataFrame) -> bool:
    """Return whether Parquet stores a data frame that pandas also reads: it writes types that it does not know."""
    try:
        data.to_parquet(buffer := io.BytesIO())
        pd.read_parquet(buffer)
    except (TypeError, ValueError, NotImplementedError):  # errors of pandas and Arrow
        return False
    return True


def _unpack(packed: Any) -> Any:
    if not isinstance(packed, dict):
        return packed
    ((kind, text),) = packed.items()
    buffer = io.BytesIO(base64.b64decode(text))
    return pd.read_parquet(buffer) if kind == "frame" else np.load(buffer, allow_pickle=False)


def _pack_features(features: list) -> dict:
    """Return the distinct features, and the index of each instance's."""
    distinct = list({id(one): one for one in features if one is not None}.values())
    index = {id(one): number for number, one in enumerate(distinct)}
    packed = [[one.kind, list(one.shape), _pack(one.cells), list(one.names)] for one in distinct]
    return {"distinct": packed, "each": [index.get(id(one)) for one in features]}


def _unpack_features(packed: dict) -> list:
    distinct = [
        Features(kind, tuple(shape), _unpack(cells), tuple(names)) for kind, shape, cells, names in packed["distinct"]
    ]
    return [None if index is None else distinct[index] for index in packed["each"]]
