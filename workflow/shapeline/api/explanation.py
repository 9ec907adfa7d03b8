"""The Explanation of the Python interface: scores with names and data, to index, plot, convert and save."""

import dataclasses
import itertools
import math
import reprlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from shapeline.api import drawing, formatting, stored
from shapeline.attribution.explanation import OPTIONAL
from shapeline.attribution.explanation import Explanation as Record
from shapeline.designs.interactions import build_symmetric
from shapeline.errors import ShapelineError, nearest, reported_extras, shorten_name
from shapeline.files import check_path
from shapeline.games.features import Features
from shapeline.games.validation_scores import check_order
from shapeline.methods.registry import METHODS
from shapeline.scores import RENAMED_COLUMNS

if TYPE_CHECKING:
    import shap
    from matplotlib.figure import Figure

    from shapeline.report.elements import HTML

RENAMED = RENAMED_COLUMNS | {"pairs": "interaction_values"}
# By names of shap and pandas.
EQUIVALENTS = {
    "values": "scores",
    "shap_values": "scores",
    "expected_value": "base_values",
    "abs": "summary()",
    "mean": "summary()",
    "cohorts": 'plot("cohort", groups=...)',
    "shape": "scores.shape",
    "to_csv": "to_frame().to_csv(path)",
    "to_pandas": "to_frame()",
    "to_parquet": "save(path)",
}
LEVEL = 1.96  # half-width of a 95 % interval per standard error


@dataclass(frozen=True, repr=False)
class Metadata:
    """Metadata of explanations.

    kind: "table", "image", "text" or "array". method: its name and parameters. value: of the model. reference: the
    baseline in words; rows: its number of background rows, all evaluated in each evaluation. features, names: per
    instance; features are None where unknown. data: the explained inputs: a data frame, an array, or a list of words
    per text; None where unknown. instances: their names. classes: their names; empty for a regression or where unknown.
    inputs: per row the position of the instance, of which several classes may be explained; empty: one row each.
    """

    kind: str = "array"
    method: Mapping[str, Any] = field(default_factory=dict)
    value: str | None = None
    reference: str = ""
    rows: int = 1
    features: Sequence[Features | None] = ()
    names: Sequence[tuple[str, ...]] = ()
    data: Any = None
    instances: Sequence = ()
    classes: tuple[str, ...] = ()
    inputs: Sequence[int] = ()

    def __repr__(self) -> str:
        """Return a line per field; long lists are shortened, and arrays and data frames are their shape."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        lines = [
            f"  {name}: {f'{type(one).__name__} {one.shape}' if hasattr(one, 'shape') else reprlib.repr(one)}"
            for name, one in values.items()
        ]
        return "\n".join(["Metadata", *(line if len(line) < 100 else f"{line[:99]}…" for line in lines)])

    def at(self, order: np.ndarray) -> "Metadata":
        """Return the metadata of the instances at these positions."""
        each = {name: [getattr(self, name)[i] for i in order] for name in ("features", "names", "instances")}
        each["inputs"] = [self.inputs[i] for i in order] if len(self.inputs) else ()
        data = self.data.iloc[order] if isinstance(self.data, pd.DataFrame) else self.data
        if data is self.data and data is not None:
            data = [data[i] for i in order] if isinstance(data, list) else data[order]
        return dataclasses.replace(self, data=data, **each)


@dataclass(repr=False, eq=False)
class Explanation(Record):
    """Scores (n, *feature shape) of n instances by one method, with metadata; NaN beyond an instance's features.

    Columns are those of `attribution.explanation.Explanation`: scores, standard_error (1.96 times it is the half-width
    of a 95 % interval), interaction_values (NaN beyond an instance's own pairs), interactions_standard_error,
    evaluations, seconds, target, value_full, value_empty, status, error, warning, details. e[3], e[2:5], e[mask] are
    instances; e[:, "age"], e[:, ["age", "sex"]] and e[:, 2] are features.
    """

    about: Metadata = field(default_factory=Metadata)

    @property
    def feature_names(self) -> tuple[str, ...] | list[tuple[str, ...]]:
        """The feature names, or a tuple per instance where instances have different features."""
        return self.about.names[0] if self._shares_names() else list(self.about.names)

    @property
    def data(self) -> Any:
        """The explained inputs: a data frame, an array, or a list of words per text; None where unknown."""
        return self.about.data

    @property
    def base_values(self) -> np.ndarray:
        """Values (n,) of the model where all features are masked."""
        return self.value_empty

    @property
    def target_names(self) -> list[str]:
        """The explained class per instance, by its name or number; "prediction" for a regression."""
        names = self.about.classes
        if self.about.value == "prediction" or (self.about.value is None and not names):
            return ["prediction"] * len(self)
        return [names[number] if number < len(names) else f"class {number}" for number in self.target]

    @property
    def cost(self) -> dict[str, float]:
        """Mean evaluations per instance, background rows per evaluation, and seconds of all instances."""
        method = METHODS.get(self.about.method.get("method"))
        counts = pd.Series(self.evaluations).groupby(self.input_numbers)
        shared = method is None or method.is_design  # classes of an instance share its coalitions
        evaluations = float((counts.max() if shared else counts.sum()).mean()) if len(self) else 0.0
        return {"evaluations": evaluations, "rows": self.about.rows, "seconds": float(np.sum(self.seconds))}

    def of(self, index: int) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
        """Return feature names, scores (d,) and half-widths (d,) of 95 % intervals, or None, of one instance."""
        names = self.about.names[index]
        half = None if self.standard_error is None else LEVEL * self.standard_error[index].ravel()[: len(names)]
        return names, self.scores[index].ravel()[: len(names)], half

    @property
    def half_widths(self) -> np.ndarray | None:
        """Half-widths (n, d) of 95 % intervals; None where the method gives none."""
        return None if self.standard_error is None else LEVEL * _flatten(self.standard_error)

    @property
    def input_numbers(self) -> np.ndarray:
        """Per row the number of its instance, from 0 in the order of first rows; classes of an instance share it."""
        given = self.about.inputs if len(self.about.inputs) else range(len(self))
        return pd.factorize(np.asarray(given, int))[0]

    def _shares_names(self) -> bool:
        names = self.about.names
        return bool(names) and all(each is names[0] or each == names[0] for each in names)

    def __len__(self) -> int:
        return len(self.scores)

    def __getattr__(self, name: str) -> Any:
        """Return a column by the name that it had before version 0.2, with a DeprecationWarning."""
        if name not in RENAMED:
            remedy = f"; use explanation.{EQUIVALENTS[name]}" if name in EQUIVALENTS else ""
            raise AttributeError(f"Explanation has no attribute '{name}'{remedy}")
        warnings.warn(f"{name} is deprecated; use {RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return getattr(self, RENAMED[name])

    def at(self, order: np.ndarray) -> "Explanation":
        """Return the instances at these positions."""
        columns = {one.name: getattr(self, one.name) for one in dataclasses.fields(Record)}
        picked = Explanation(**vars(Record(**columns).at(order)), about=self.about.at(order))
        if picked.scores.ndim > 2 or not len(picked):
            return picked
        d = max(map(len, picked.about.names), default=picked.scores.shape[1])  # less without the longest
        widths = dict.fromkeys(OPTIONAL, d * (d - 1) // 2) | {"scores": d, "standard_error": d}
        kept = {name: getattr(picked, name)[:, :n] for name, n in widths.items() if getattr(picked, name) is not None}
        return dataclasses.replace(picked, **kept)

    def __getitem__(self, key: Any) -> "Explanation":
        rows, *columns = key if isinstance(key, tuple) and key else (key,)
        if isinstance(rows, str):
            raise ShapelineError(
                f"explanation: instances are indexed by position; for the feature '{rows}' use e[:, '{rows}']"
            )
        if isinstance(rows, pd.Series):
            check_order("explanation", pd.Series(0, pd.Index(self.about.instances)), rows, ("the instances", "mask"))
        if len(columns) > 1:
            remedy = "give instances and features, as in e[2:5, 'age']; the class is chosen by explain(..., target=)"
            raise ShapelineError(f"explanation: {len(key)} indices; {remedy}")
        picked = self.at(_find_positions("instance", len(self), rows))
        return picked._having(*columns) if columns else picked

    def __iter__(self) -> Iterator["Explanation"]:
        """Return the explanations of one instance each."""
        return (self.at(np.array([index])) for index in range(len(self)))

    def _having(self, columns: Any) -> "Explanation":
        """Return the same instances with some of their features."""
        if not self._shares_names():
            raise ShapelineError(
                "explanation: instances have different features; select one instance first, as in e[3]"
            )
        names = self.about.names[0]
        is_label = isinstance(columns, str) or (isinstance(columns, tuple) and str(columns) in names)  # of two levels
        selected = [columns] if is_label or isinstance(columns, int | np.integer) else columns
        if np.iterable(selected) and not isinstance(selected, slice):
            selected = list(itertools.chain.from_iterable(_find_features(names, one) for one in selected))
        selected = selected[0] if type(columns) is int else selected
        indices = _find_positions("feature", len(names), selected)
        remaining = tuple(names[index] for index in indices)
        about, data = self.about, self.about.data
        if isinstance(data, pd.DataFrame) and tuple(map(str, data)) == names:
            data = data.iloc[:, indices]
        elif isinstance(data, np.ndarray) and data.shape[1:] == (len(names),):
            data = data[:, indices]
        features = [one and _select_features(one, indices, remaining) for one in about.features]
        about = dataclasses.replace(about, names=[remaining] * len(self), features=features, data=data)
        flat = _flatten(self.scores)[:, indices]
        spread = None if self.standard_error is None else _flatten(self.standard_error)[:, indices]
        chosen = (slice(None), indices[:, None], indices), (slice(None), *np.triu_indices(len(indices), 1))
        pairs, of_pairs = (
            None if one is None else build_symmetric(one, len(names))[chosen[0]][chosen[1]]
            for one in (self.interaction_values, self.interactions_standard_error)
        )
        interactions = {"interaction_values": pairs, "interactions_standard_error": of_pairs}
        return dataclasses.replace(self, scores=flat, standard_error=spread, about=about, **interactions)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per instance and feature: instance, target, feature, value (of columns), score and half, the
        half-width of its 95 % interval, NaN where the method has none."""
        sizes = np.array([len(names) for names in self.about.names], int)
        each = np.repeat(np.arange(len(self)), sizes)
        inside = np.arange(_flatten(self.scores).shape[1]) < sizes[:, None]
        named = {
            "instance": pd.Series(list(self.about.instances), dtype=object).to_numpy()[each],  # tuples stay tuples
            "target": np.array(self.target_names, dtype=object)[each],
            "feature": [name for names in self.about.names for name in names],
        }
        values = self._values()
        if values is not None:
            named["value"] = values.to_numpy(dtype=object).ravel()
        half = np.full(inside.shape, np.nan) if self.standard_error is None else LEVEL * self.standard_error
        named |= {"score": _flatten(self.scores)[inside], "half": half.reshape(inside.shape)[inside]}
        return pd.DataFrame(named).infer_objects()

    def interactions(self) -> pd.DataFrame:
        """Return a row per instance and pair of features, the largest of each instance first: instance, target, first,
        second, score and half, the half-width of its 95 % interval, NaN where unknown. Scores of features and pairs
        sum to v(N) - v(empty). Raises ShapelineError where the method has no interactions.
        """
        if self.interaction_values is None:
            method = formatting.name_of(self)
            able = ", ".join(name for name, one in METHODS.items() if one.pairs)
            raise ShapelineError(f"explanation: {method} computes no interactions; use one of {able}")
        tables = []
        for index, names in enumerate(self.about.names):
            first, second = np.triu_indices(len(names), 1)
            score = self.interaction_values[index, : len(first)]
            half = np.full(len(first), np.nan)
            if self.interactions_standard_error is not None:
                half = LEVEL * self.interactions_standard_error[index, : len(first)]
            order = np.argsort(-np.abs(score), kind="stable")
            table = {"first": np.array(names, object)[first[order]], "second": np.array(names, object)[second[order]]}
            who = {"instance": self.about.instances[index], "target": self.target_names[index]}
            who = {name: [value] * len(order) for name, value in who.items()}
            tables.append(pd.DataFrame({**table, "score": score[order], "half": half[order], **who}))
        result = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
        return result.reindex(columns=["instance", "target", "first", "second", "score", "half"])

    def _values(self) -> pd.DataFrame | None:
        """Return the feature values (n, d) where features are columns with known values, else None."""
        if self.data is None or self.about.kind != "table" or not self._shares_names():
            return None
        names = self.about.names[0]
        if isinstance(self.data, pd.DataFrame):
            return self.data if tuple(map(str, self.data)) == names else None
        return pd.DataFrame(self.data, columns=list(names)) if self.data.shape[1] == len(names) else None

    def _images(self) -> np.ndarray:
        """Return the explained images as (n, channels, height, width); their channels may be last or missing."""
        data = np.asarray(self.data)
        if data.ndim == 3:
            return data[:, None]
        return data if data.shape[1:] == self.about.features[0].cells.shape else np.moveaxis(data, -1, 1)

    def summary(self) -> pd.DataFrame:
        """Return the mean |score| over instances per feature, the largest first, and the mean score: one of each class
        where instances are explained for several, and of each output of a game, which have no mean in common."""
        order, flat = self._rank_features(), _flatten(self.scores)
        means = {"mean |score|": np.nanmean(np.abs(flat), axis=0)}
        targets = np.array(self.target_names, object)
        for target in self._list_mean_targets():
            rows = flat if target is None else flat[targets == target]
            means["mean score" if target is None else f"mean score, {target}"] = np.nanmean(rows, axis=0)
        table = pd.DataFrame(means, index=pd.Index(self.about.names[0], name="feature"))
        return table.iloc[order]

    def _rank_features(self) -> np.ndarray:
        """Return the positions of features, the largest mean |score| first; names may repeat, as words of a text do."""
        if not len(self):
            raise ShapelineError("explanation: there are no instances, so there is no mean; select one or more")
        if not self._shares_names():
            raise ShapelineError("explanation: instances have different features, so there is no mean; use to_frame()")
        return np.argsort(-np.nanmean(np.abs(_flatten(self.scores)), axis=0), kind="stable")

    def _list_mean_targets(self) -> list[str | None]:
        """Return the classes or outputs that have a mean score each; None alone where one mean is of all rows."""
        targets = [*dict.fromkeys(self.target_names)]
        is_apart = len(set(self.input_numbers)) < len(self) or self.about.value == formatting.GAME
        return targets if is_apart and len(targets) > 1 else [None]

    def plot(
        self, kind: str | None = None, *, feature: str | None = None, groups: Any = None, max_display: int | None = None
    ) -> "Figure | HTML":
        """Return a figure, or coloured words for texts, with 95 % intervals.

        Parameters
        ----------
        kind : str, optional
            By default selected by the kind of data. As in shap: "bar" (one instance; of several the mean |score|),
            "waterfall" (one instance), "beeswarm" (mean |score| and a dot per instance), "heatmap" (features by
            instances), "dependence" (scores of a feature against its values), "cohort" (mean |score| in groups). And
            "overlay" for images, "words" for texts, "pairs" for one instance with interactions.
        feature : str, optional
            For "dependence"; by default the feature with the largest mean |score|.
        groups : str or sequence, optional
            For "cohort": a column, or a group per instance, or per row where several classes are explained; by
            default the explained classes.
        max_display : int, optional
            Features with their own bar or row, by default 14; in figures of one instance the others are summed.
        """
        from shapeline.api import plots

        return drawing.add_png(plots.plot(self, kind, feature=feature, groups=groups, max_display=max_display))

    def to_html(self, path: str | Path | None = None) -> str | None:
        """Return a page with the interactive explorer, which needs no network, or write it to a file.

        Parameters
        ----------
        path : str or Path, optional
            The file; without one the page is returned.

        Returns
        -------
        str or None
            The page, None where it is written.
        """
        name = formatting.name_of(self)
        return drawing.write_page(f"Explanation by {name}", drawing.facts(self), {name: self}, None, path)

    def __repr__(self) -> str:
        return formatting.format_explanation(self)

    def _repr_html_(self) -> str:
        return drawing.page(self)

    @reported_extras("to_shap")
    def to_shap(self) -> "shap.Explanation":
        """Return a shap.Explanation, for the plots of shap; of images scores per pixel (n, height, width, channels), in
        equal shares of a feature's; of interaction methods (n, d, d), as of TreeExplainer: half of a pair's score at
        either place. ShapelineError without shap, or if the instances of a table have other features."""
        import shap

        if not len(self):
            raise ShapelineError("to_shap: there are no instances; select one or more")
        if self.about.kind == "image" and self.data is not None and None not in self.about.features:
            each = zip(self.scores, self.about.features, strict=True)
            pixels = np.stack([features.divide(scores.ravel()[: features.d]) for scores, features in each])
            return shap.Explanation(
                np.moveaxis(pixels, 1, -1), self.value_empty, np.moveaxis(self._images(), 1, -1).astype(float)
            )
        if self.about.kind == "text":  # shap joins the words as they are
            words = [[*(f"{name} " for name in names[:-1]), *names[-1:]] for names in self.about.names]
            each = [[self.of(index)[1] for index in range(len(self))], words, self.about.names]
            values, data, names = (_pack_ragged(parts) for parts in each)
            return shap.Explanation(values, self.value_empty, data, feature_names=names)
        if not self._shares_names():
            raise ShapelineError(
                "to_shap: instances have different features; convert one of them, as in e[3].to_shap()"
            )
        values, scores = self._values(), _flatten(self.scores)[:, : (d := len(self.about.names[0]))]
        if self.interaction_values is not None:
            scores = build_symmetric(self.interaction_values, d) / 2 + scores[..., None] * np.eye(d)
        return shap.Explanation(
            scores,
            self.value_empty,
            None if values is None else values.apply(_to_numbers).to_numpy(float),
            display_data=None if values is None else np.vectorize(_show_cell, [object])(values.to_numpy(dtype=object)),
            feature_names=list(self.about.names[0]),
        )

    def save(self, path: str | Path) -> None:
        """Write a Parquet file for `scores.read` and `Explanation.load`; scores are stored as float32."""
        if str(path).lower().endswith((".csv", ".feather", ".html", ".json", ".npz", ".pkl", ".tsv", ".xlsx")):
            raise ShapelineError(
                f"{path}: save writes Parquet; end the name with .parquet, or use to_frame() or to_html"
            )
        stored.write(self, check_path("save", path))

    @classmethod
    def load(cls, path: str | Path) -> "Explanation":
        """Read a file of `save`, or a score file or folder of a run: the scores of the model itself, without those of
        other training seeds. Raises ShapelineError for several repeats."""
        record, about = stored.read(path)
        return cls(**vars(record), about=Metadata(**about))


def _find_features(names: tuple[str, ...], label: Any) -> list:
    """Return the positions of the features of a name, several of a text's word, or any other index unchanged."""
    is_name = isinstance(label, str | tuple)
    places = [place for place, name in enumerate(names) if name == str(label)]
    if is_name and not places:
        raise ShapelineError(f"explanation: there is no feature '{label}'.{nearest(str(label), names)}")
    if type(label) is int and places and places != [label]:
        raise ShapelineError(
            f"explanation: {label} is the name of a feature and the position of another; give names, as in "
            f"e[:, '{label}']"
        )
    return places if is_name else [label]


def _find_positions(what: str, count: int, key: Any) -> np.ndarray:
    """Return the positions (n,) that an index selects. Raises ShapelineError where it selects none of them."""
    try:
        indices = np.atleast_1d(np.arange(count)[key])
        if key is not None and indices.ndim == 1 and (len(indices) or what == "instance"):
            return indices
    except (IndexError, TypeError, ValueError):
        pass
    if np.ndim(key) == 1 and np.asarray(key).dtype == bool:
        raise ShapelineError(f"explanation: {what}s: a mask of {len(key)} for {count}; give a Boolean per {what}")
    raise ShapelineError(
        f"explanation: {what}s: {shorten_name(repr(key))} selects none of {count}; give positions below {count}, a "
        f"slice, or a Boolean per {what}"
    )


def _flatten(scores: np.ndarray) -> np.ndarray:
    """Return scores (n, *feature shape) as (n, d), also of no instances."""
    return scores.reshape(len(scores), math.prod(scores.shape[1:]))


def _pack_ragged(rows: Sequence) -> np.ndarray:
    """Return rows of any lengths as an array of arrays, as shap holds texts."""
    packed = np.empty(len(rows), dtype=object)
    packed[:] = [np.array(row) for row in rows]
    return packed


def _show_cell(cell: object) -> object:
    """Return a cell of a table as shap's plots take it: a number or a text, also of dates."""
    return cell if isinstance(cell, str | int | float | np.number | np.bool) else formatting.format_value(cell)


def _to_numbers(values: pd.Series) -> pd.Series:
    """Return a numeric column as floats, else the codes of its categories, in their order, or of its texts."""
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    try:
        is_categorical = isinstance(values.dtype, pd.CategoricalDtype)
        codes = values.cat.codes if is_categorical else pd.factorize(values, sort=True)[0]
    except (TypeError, NotImplementedError):  # of lists
        codes = pd.factorize(values.map(str), sort=True)[0]
    return pd.Series(np.where(values.isna(), np.nan, codes), values.index)


def _select_features(features: Features, indices: np.ndarray, names: tuple[str, ...]) -> Features:
    """Return some of the features; the others are never masked."""
    number = np.full(features.d + 1, -1, np.int32)
    number[indices] = np.arange(len(indices))
    return Features(features.kind, (len(indices),), number[features.cells], names)
