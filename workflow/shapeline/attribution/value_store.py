"""Values of coalitions in the row store, so that methods which evaluate the same coalition of an instance share it."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from shapeline.attribution.row_store import ADDRESS, Table
from shapeline.designs.design import unique_rows

SCHEMA = pa.schema([("mask", pa.binary()), ("value", pa.float64()), ("seconds", pa.float64())])
# From positions in the instances (a,) and masks (b, d), or (a, b, d) of each, to values (a, b) and their seconds.
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]]


class ValueStore:
    """The values of one game per instance, of a model or any other set function; table: of SCHEMA, growing."""

    def __init__(self, table: Table):
        self.table = table

    def values(
        self, addresses: Sequence[str], masks: np.ndarray, evaluate: Evaluate
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values (n, K) of masks (K, d) or (n, K, d), and how many and how many seconds of them are reused, (n,)
        each. What is missing is evaluated once for all instances that miss the same coalitions, and kept before the
        next call."""
        n, K, d = len(addresses), *masks.shape[-2:]
        values, seconds = np.empty((n, K)), np.zeros((n, K))
        known = np.zeros((n, K), bool)
        if not values.size:
            return values, known.sum(axis=1), seconds.sum(axis=1)
        keys = _keys(masks, d, n)
        stored = self.table.read({f"{address}-{d}" for address in addresses})
        if len(stored):
            place = pd.Index(addresses).get_indexer(stored[ADDRESS].str.removesuffix(f"-{d}"))
            theirs = _join(place, np.frombuffer(b"".join(stored["mask"]), np.uint8).reshape(len(stored), -1))
            order = np.argsort(theirs)
            at = order[np.searchsorted(theirs, keys, sorter=order).clip(max=len(theirs) - 1)]
            known = theirs[at] == keys
            values[known] = stored["value"].to_numpy()[at[known]]
            seconds[known] = stored["seconds"].to_numpy()[at[known]]
        reused = known.sum(axis=1), seconds.sum(axis=1)
        for rows, columns in _missing(known):
            asked = masks[columns] if masks.ndim == 2 else masks[np.ix_(rows, columns)]
            made, took = evaluate(rows, asked)
            values[np.ix_(rows, columns)] = made
            packed = np.packbits(np.broadcast_to(asked, (*made.shape, d)), axis=2)
            self._keep([f"{addresses[row]}-{d}" for row in rows], packed, made, took / made.size)
        return values, *reused

    def _keep(self, addresses: list[str], packed: np.ndarray, values: np.ndarray, seconds: float) -> None:
        per_row = {"mask": [row.tobytes() for row in packed.reshape(values.size, -1)], "value": values.ravel()}
        self.table.append(pd.DataFrame({ADDRESS: np.repeat(addresses, values.shape[1]), **per_row, "seconds": seconds}))
        self.table.flush()


def _keys(masks: np.ndarray, d: int, n: int) -> np.ndarray:
    """Return what names each coalition of each instance, (n, K)."""
    packed = np.packbits(masks, axis=-1)
    packed = np.broadcast_to(packed, (n, *packed.shape[-2:]))
    places = np.repeat(np.arange(n), packed.shape[1])
    return _join(places, packed.reshape(-1, packed.shape[2])).reshape(n, -1)


def _join(places: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """Return positions (m,) and packed masks (m, bytes) as one sortable key (m,)."""
    joined = np.concatenate([places.astype(">i4").reshape(-1, 1).view(np.uint8), packed], axis=1)
    return np.ascontiguousarray(joined).view(np.dtype((np.void, joined.shape[1]))).ravel()


def _missing(known: np.ndarray):
    """Yield the instances that miss the same coalitions and miss some, with the positions of these."""
    first, group = unique_rows(known)
    for number, row in enumerate(first):
        columns = np.flatnonzero(~known[row])
        if len(columns):
            yield np.flatnonzero(group == number), columns
