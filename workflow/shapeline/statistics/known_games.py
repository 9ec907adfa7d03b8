"""Games with known Shapley values in a Parquet file (docs/formats.md): tables, and sums of terms.

A term is a weight that counts where some features are present and others absent, as a leaf of a decision tree; its
value follows from the sizes of both sets (Lundberg et al. 2020, interventional TreeSHAP).
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import files

SIDES = ("present", "absent")
ENCODING = {f"{column}.list.element": "BYTE_STREAM_SPLIT" for column in ("values", "weights", "exact")}
STORED = Path(__file__).with_name("games.parquet")


@dataclass(frozen=True, eq=False)
class Game:
    """Some instances of one game. value: masks (n, K, d) bool, those of each instance, to values (n, K); exact: Shapley
    values (n, d); stored: the tables (n, 2^d) or n sums of terms behind it; kind: as of the file, "" for none."""

    name: str
    d: int
    value: Callable[[np.ndarray], np.ndarray]
    exact: np.ndarray
    stored: "np.ndarray | Sequence[Terms]"
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Terms:
    """A sum of terms. weight (T,); present, absent (T, d) bool: who must be there and who must not."""

    weight: np.ndarray
    present: np.ndarray
    absent: np.ndarray

    @classmethod
    def of(cls, d: int, weight: Sequence[float], present: Sequence, absent: Sequence) -> "Terms":
        """From the features of each term, as lists of their numbers."""
        sets = np.zeros((2, len(weight), d), bool)
        for side, lists in enumerate((present, absent)):
            for number, members in enumerate(lists):
                sets[side, number, np.asarray(members, int)] = True
        return cls(np.asarray(weight, float), *sets)

    def value(self, masks: np.ndarray) -> np.ndarray:
        """Values (K,) of coalitions (K, d)."""
        from scipy.sparse import csr_array

        kept = masks.astype(np.float32)
        wrong = csr_array(self.present, dtype=np.float32) @ (1 - kept).T
        wrong += csr_array(self.absent, dtype=np.float32) @ kept.T
        return self.weight @ (wrong == 0)

    def shapley(self) -> np.ndarray:
        """Shapley values (d,): p present and a masked features share a weight as 1 / (p C(p + a, a)) of it for each
        present one and -1 / (a C(p + a, a)) for each absent one."""
        from scipy.special import beta

        p, a = self.present.sum(axis=1), self.absent.sum(axis=1)
        for_present = np.where(p > 0, beta(np.maximum(p, 1), a + 1), 0)
        for_absent = np.where(a > 0, beta(p + 1, np.maximum(a, 1)), 0)
        return (self.weight * for_present) @ self.present - (self.weight * for_absent) @ self.absent


def from_tables(name: str, tables: np.ndarray, kind: str = "") -> Game:
    """The game of `tables` (n, 2^d): column c holds the value of the features whose bit is set in c."""
    from shapeline.designs.exact import shapley

    d = tables.shape[1].bit_length() - 1
    design = shapley(d)
    return build_from_tables(name, tables, tables[:, design.masks @ (1 << np.arange(d))] @ design.readout.T, kind)


def build_from_tables(name: str, tables: np.ndarray, exact: np.ndarray, kind: str) -> Game:
    """The same of tables whose Shapley values (n, d) are at hand."""
    bits = 1 << np.arange(exact.shape[1])
    return Game(name, len(bits), lambda masks: np.take_along_axis(tables, masks @ bits, axis=1), exact, tables, kind)


def from_terms(name: str, instances: Sequence[Terms], kind: str = "") -> Game:
    """The game of one sum of terms an instance."""
    return Game(
        name,
        instances[0].present.shape[1],
        lambda masks: np.array([one.value(own) for one, own in zip(instances, masks, strict=True)]),
        np.array([one.shapley() for one in instances]),
        instances,
        kind,
    )


def write(games: Iterable[Game], path: Path | str) -> None:
    """Write games to a file, tables in single precision, with the Shapley values of what is written."""
    frame = pd.DataFrame(row for game in games for row in _rows(game))
    with files.atomic(path) as partial:
        frame.to_parquet(partial, index=False, use_dictionary=False, compression="zstd", column_encoding=ENCODING)


def _rows(game: Game) -> Iterator[dict]:
    about = {"game": game.name, "kind": game.kind, "d": game.d}
    for number, stored in enumerate(game.stored):
        row = {**about, "instance": number, "form": "terms", "values": None, "weights": None}
        row |= {"present": None, "absent": None, "exact": game.exact[number]}
        if isinstance(stored, Terms):
            row |= {side: [np.flatnonzero(part).astype(np.int16) for part in getattr(stored, side)] for side in SIDES}
            row |= {"weights": stored.weight}
        else:
            single = np.asarray(stored, np.float32)
            row |= {"form": "table", "values": single, "exact": from_tables("", single[None].astype(float)).exact[0]}
        yield row


def read(path: Path | str = STORED) -> list[Game]:
    """The games of a file, in its order."""
    frame = pd.read_parquet(path)
    return [_game(name, rows) for name, rows in frame.groupby("game", sort=False)]


def _game(name: str, rows: pd.DataFrame) -> Game:
    kind, d = rows["kind"].iloc[0], int(rows["d"].iloc[0])
    exact = np.array(rows["exact"].to_list())
    if rows["form"].iloc[0] == "table":
        return build_from_tables(name, np.array(rows["values"].to_list(), float), exact, kind)
    parts = zip(rows["weights"], rows["present"], rows["absent"], strict=True)
    return dataclasses.replace(from_terms(name, [Terms.of(d, *part) for part in parts], kind), exact=exact)
