"""An Explanation as a person meets it: it knows its names and data, and can be read, drawn, indexed and kept."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from shapeline.attribution.explanation import Explanation as Record
from shapeline.designs.interactions import square
from shapeline.errors import ShapelineError, describe_missing, nearest
from shapeline.game.features import Features
from shapeline.methods.registry import METHODS
from shapeline.report.python import drawing, stored, words

if TYPE_CHECKING:
    import shap
    from matplotlib.figure import Figure

    from shapeline.report.html import HTML

LEVEL = 1.96  # half-widths of 95 % intervals to an uncertainty


@dataclass(frozen=True)
class About:
    """What explanations are of.

    kind: "table", "image", "text" or "array". method: its name and parameters. value: of the model. reference: in
    words; rows: of it, all of which each evaluation asks. features, names: of each instance; features are None where
    unknown. data: what was explained: a data frame, an array, or a list of the words of each text; None where unknown.
    instances: what each is called. classes: their names; none of a regression, or where unknown.
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

    def at(self, order: np.ndarray) -> "About":
        """Of the instances at these positions."""
        each = {name: [getattr(self, name)[i] for i in order] for name in ("features", "names", "instances")}
        data = self.data.iloc[order] if isinstance(self.data, pd.DataFrame) else self.data
        if data is self.data and data is not None:
            data = [data[i] for i in order] if isinstance(data, list) else data[order]
        return dataclasses.replace(self, data=data, **each)


@dataclass(repr=False, eq=False)
class Explanation(Record):
    """Scores (n, *feature shape) of n instances by one method, and what they are of; NaN beyond an instance's features.

    Columns are those of `attribution.explanation.Explanation`: scores, uncertainty (1.96 of it are the half of a 95 %
    interval), pairs (of methods of interactions; NaN beyond an instance's own), pairs_uncertainty, evaluations,
    seconds, target, value_full, value_empty, status, error, flag, extra.
    e[3], e[2:5], e[mask] are instances; e[:, "age"], e[:, ["age", "sex"]] and e[:, 2] are features.
    """

    about: About = field(default_factory=About)

    # ------------------------------------------------------------------------------------------------ what it knows

    @property
    def feature_names(self) -> tuple[str, ...] | list[tuple[str, ...]]:
        """The features' names, or where instances have their own, a tuple for each of them."""
        return self.about.names[0] if self._shares_names() else list(self.about.names)

    @property
    def data(self) -> Any:
        """What was explained: a data frame, an array, or a list of the words of each text; None where unknown."""
        return self.about.data

    @property
    def base_values(self) -> np.ndarray:
        """(n,) values of the model where all features are absent."""
        return self.value_empty

    @property
    def target_names(self) -> list[str]:
        """The class explained of each instance, by its name or number; "prediction" of a regression."""
        names = self.about.classes
        if self.about.value == "prediction":
            return ["prediction"] * len(self)
        return [names[number] if number < len(names) else f"class {number}" for number in self.target]

    @property
    def cost(self) -> dict[str, float]:
        """Evaluations an instance on average, rows of the reference that each asks, and seconds of all instances."""
        evaluations = float(np.mean(self.evaluations)) if len(self) else 0.0
        return {"evaluations": evaluations, "rows": self.about.rows, "seconds": float(np.sum(self.seconds))}

    def of(self, place: int) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
        """Names, scores (d,) and half-widths of 95 % intervals (d,), or None, of the features of one instance."""
        names = self.about.names[place]
        half = None if self.uncertainty is None else LEVEL * self.uncertainty[place].ravel()[: len(names)]
        return names, self.scores[place].ravel()[: len(names)], half

    def _shares_names(self) -> bool:
        names = self.about.names
        return bool(names) and all(each is names[0] or each == names[0] for each in names)

    # ------------------------------------------------------------------------------------------------------ indexing

    def __len__(self) -> int:
        return len(self.scores)

    def at(self, order: np.ndarray) -> "Explanation":
        """The instances at these positions."""
        columns = {one.name: getattr(self, one.name) for one in dataclasses.fields(Record)}
        return Explanation(**vars(Record(**columns).at(order)), about=self.about.at(order))

    def __getitem__(self, key: Any) -> "Explanation":
        rows, columns = key if isinstance(key, tuple) else (key, None)
        if isinstance(rows, str):
            raise ShapelineError(f"explanation: instances go by position; for the feature '{rows}' use e[:, '{rows}']")
        places = np.atleast_1d(np.arange(len(self))[rows])  # an IndexError beyond the end, which ends a loop
        picked = self.at(places)
        return picked if columns is None else picked._having(columns)

    def _having(self, columns: Any) -> "Explanation":
        """The same instances with some of their features."""
        if not self._shares_names():
            raise ShapelineError("explanation: instances have features of their own; pick one instance first, as e[3]")
        names = self.about.names[0]
        asked = [columns] if isinstance(columns, str) else columns
        if not isinstance(asked, slice | int | np.integer):
            for name in asked:
                if isinstance(name, str) and name not in names:
                    raise ShapelineError(f"explanation: there is no feature '{name}'.{nearest(name, names)}")
            asked = [names.index(name) if isinstance(name, str) else name for name in asked]
        kept = np.atleast_1d(np.arange(len(names))[asked])
        left = tuple(names[place] for place in kept)
        about, data = self.about, self.about.data
        if isinstance(data, pd.DataFrame) and set(left) <= set(data):
            data = data[list(left)]
        elif isinstance(data, np.ndarray) and data.shape[1:] == (len(names),):
            data = data[:, kept]
        features = [one and _only(one, kept, left) for one in about.features]
        about = dataclasses.replace(about, names=[left] * len(self), features=features, data=data)
        flat = self.scores.reshape(len(self), -1)[:, kept]
        spread = None if self.uncertainty is None else self.uncertainty.reshape(len(self), -1)[:, kept]
        pairs, of_pairs = (
            None if one is None else _pairs_of(one, len(names), kept) for one in (self.pairs, self.pairs_uncertainty)
        )
        return dataclasses.replace(
            self, scores=flat, uncertainty=spread, pairs=pairs, pairs_uncertainty=of_pairs, about=about
        )

    # ------------------------------------------------------------------------------------------------------- reading

    def to_frame(self) -> pd.DataFrame:
        """A row an instance and feature: instance, target, feature, value (of columns), score and half, half the width
        of its 95 % interval, NaN where the method has none."""
        sizes = np.array([len(names) for names in self.about.names], int)
        each = np.repeat(np.arange(len(self)), sizes)
        inside = np.arange(self.scores.reshape(len(self), -1).shape[1]) < sizes[:, None]
        named = {
            "instance": np.array(self.about.instances, dtype=object)[each],
            "target": np.array(self.target_names, dtype=object)[each],
            "feature": [name for names in self.about.names for name in names],
        }
        values = self._values()
        if values is not None:
            named["value"] = values.to_numpy(dtype=object).ravel()
        half = np.full(inside.shape, np.nan) if self.uncertainty is None else LEVEL * self.uncertainty
        named |= {
            "score": self.scores.reshape(len(self), -1)[inside],
            "half": half.reshape(inside.shape)[inside],
        }
        return pd.DataFrame(named).infer_objects()

    def interactions(self) -> pd.DataFrame:
        """A row an instance and pair of features, the largest of an instance first: instance, target, first, second,
        score and half, half the width of its 95 % interval, NaN where none is known. Scores of features and pairs add
        up to v(N) - v(empty). Raises ShapelineError where the method has none.
        """
        if self.pairs is None:
            method = words.name_of(self)
            able = ", ".join(name for name, one in METHODS.items() if one.pairs)
            raise ShapelineError(f"explanation: {method} scores no pairs; explain by one of {able}")
        tables = []
        for place, names in enumerate(self.about.names):
            first, second = np.triu_indices(len(names), 1)
            score = self.pairs[place, : len(first)]
            half = np.full(len(first), np.nan)
            if self.pairs_uncertainty is not None:
                half = LEVEL * self.pairs_uncertainty[place, : len(first)]
            order = np.argsort(-np.abs(score), kind="stable")
            table = {"first": np.array(names, object)[first[order]], "second": np.array(names, object)[second[order]]}
            who = {"instance": self.about.instances[place], "target": self.target_names[place]}
            tables.append(pd.DataFrame({**table, "score": score[order], "half": half[order]}).assign(**who))
        found = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
        return found.reindex(columns=["instance", "target", "first", "second", "score", "half"])

    def _values(self) -> pd.DataFrame | None:
        """What stands in each feature, (n, d), where a feature is a column whose value is known."""
        if self.data is None or self.about.kind != "table" or not self._shares_names():
            return None
        names = self.about.names[0]
        if isinstance(self.data, pd.DataFrame):
            return self.data if tuple(map(str, self.data)) == names else None
        return pd.DataFrame(self.data, columns=list(names)) if self.data.shape[1] == len(names) else None

    def summary(self) -> pd.DataFrame:
        """Over the instances: mean |score| of each feature, the largest first, and its mean score."""
        if not self._shares_names():
            raise ShapelineError(
                "explanation: instances have features of their own, which have no mean; use to_frame()"
            )
        flat = self.scores.reshape(len(self), -1)
        means = {"mean |score|": np.nanmean(np.abs(flat), axis=0), "mean score": np.nanmean(flat, axis=0)}
        table = pd.DataFrame(means, index=pd.Index(self.about.names[0], name="feature"))
        return table.sort_values("mean |score|", ascending=False, kind="stable")

    def plot(self, kind: str | None = None) -> "Figure | HTML":
        """A figure; of texts coloured words. A half-width of 95 % is drawn beside what a sampled method says.

        kind: of one instance "bars" or "waterfall"; of several with the same features "summary" (mean |score| and a
        dot an instance); "overlay" of pictures, "words" of texts; "pairs" of one instance whose pairs are scored. None:
        what fits.
        """
        return drawing.shown(drawing.plot(self, kind))

    def __repr__(self) -> str:
        return words.told(self)

    def _repr_html_(self) -> str:
        return drawing.page(self)

    # ---------------------------------------------------------------------------------------------------- to others

    def to_shap(self) -> "shap.Explanation":
        """The same as a shap.Explanation, for that library's plots. Raises ShapelineError without shap, and where
        instances have features of their own."""
        try:
            import shap
        except ImportError as error:
            raise ShapelineError(f"to_shap: {describe_missing('shap')}") from error
        if not self._shares_names():
            raise ShapelineError("to_shap: instances have features of their own; give one of them, as e[3].to_shap()")
        values = self._values()
        numbers = None if values is None else values.apply(_as_numbers).to_numpy(float)
        if self.about.kind == "text":
            values = numbers = np.array(self.about.names, dtype=object)
        return shap.Explanation(
            self.scores.reshape(len(self), -1),
            self.value_empty,
            numbers,
            display_data=None if values is None else np.asarray(values, dtype=object),
            feature_names=list(self.about.names[0]),
        )

    def save(self, path: str | Path) -> None:
        """Write a score file, which `scores.read` and `Explanation.load` read; scores are kept as float32."""
        stored.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Explanation":
        """What `save` wrote, or a label's score file or folder of a run, whose data are unknown. Raises ShapelineError
        where a file holds several repeats."""
        record, about = stored.read(path)
        return cls(**vars(record), about=About(**about))


def _pairs_of(pairs: np.ndarray, d: int, kept: np.ndarray) -> np.ndarray:
    """The pairs (n, d (d-1) / 2) among some of the features."""
    return square(pairs, d)[:, kept[:, None], kept][:, *np.triu_indices(len(kept), 1)]


def _as_numbers(values: pd.Series) -> pd.Series:
    """A column as it is where it holds numbers, else the codes of its texts."""
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    return pd.Series(np.where(values.isna(), np.nan, pd.factorize(values, sort=True)[0]), values.index)


def _only(features: Features, kept: np.ndarray, names: tuple[str, ...]) -> Features:
    """Some of the features; no other is ever removed."""
    number = np.full(features.d + 1, -1, np.int32)
    number[kept] = np.arange(len(kept))
    return Features(features.kind, (len(kept),), number[features.cells], names)
