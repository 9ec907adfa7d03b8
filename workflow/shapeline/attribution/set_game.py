"""The values of a set function instead of a model: each coalition is evaluated once, in parallel and resumably."""

import contextlib
import functools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from pickle import PicklingError
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pandas as pd

from shapeline.attribution.game_values import WHERE, ValueFile, ValueRows, allow_difference, read_attribute
from shapeline.attribution.row_store import ADDRESS
from shapeline.errors import MethodFailure, ShapelineError, describe_exception, format_count, is_out_of_memory
from shapeline.games.features import Features
from shapeline.games.validation_scores import PER_COALITION, convert_values
from shapeline.methods.settings import MethodSettings

CALL_SECONDS = 1.0  # target time of one call of a game, which determines its number of coalitions
MAX_BATCH = 2**14  # coalitions per call
MAX_VALUE = 1e302  # differences of larger values overflow
CALLS_PER_ROUND = 8  # calls per process before the number of coalitions is adapted to the time
MIN_CHECKS, CHECK_SECONDS = 3, 0.1  # cached coalitions that are evaluated again in addition to both ends, and time
CHECK_SHARE = 0.02  # time of second evaluations, which show whether a game is repeatable, over that of all first ones
MIN_STEPS = 4096  # of rounding, in the range of values; fewer are as large as the errors that intervals predict
MAX_NAMED = 6  # players of a coalition that a message names
PARENT_INTERVAL = 1.0  # seconds between two looks of a process at whether its parent still exists
FAILED = "evaluation failed"


@dataclass(frozen=True)
class Evaluation:
    """Options of a game's evaluation: processes, coalitions or seconds per call, cache and identity, on_error."""

    n_jobs: int = 1
    batch: int | None = None
    retries: int = 0
    on_error: str = "fail"
    cache: Path | None = None
    identity: str | None = None
    seconds: float = CALL_SECONDS


class Values:
    """Values v(S) of a game, (K, outputs) for coalitions (K, n); known and cached ones are not evaluated again."""

    def __init__(
        self,
        game: Callable,
        players: Sequence[str],
        how: Evaluation,
        progress: Callable | None = None,
        file: ValueFile | ValueRows | None = None,
    ):
        self.game, self.players, self.how, self.progress = game, tuple(players), how, progress
        self._known, self._table, self._failed = pd.Index([], dtype=object), None, {}
        self.used, self.most, self.seconds = pd.Index([], dtype=object), MAX_BATCH, 0.0
        self.file = ValueFile(how.cache, len(players), how.identity) if how.cache else file
        if self.file:
            self._known, self._table = self.file.read()
        self._before = self._known
        # An argument `identity` is trusted; the identity of a game says nothing about a file without one.
        own = how.identity is None or how.identity == read_attribute(game, "identity")
        if how.cache and own and not (how.identity and self.file.is_named):
            self._check_cache()

    @property
    def evaluations(self) -> int:
        """Number of distinct coalitions whose values were requested."""
        return len(self.used)

    @property
    def outputs(self) -> int:
        """Number of values of a coalition; 1 if none is known."""
        return 1 if self._table is None else self._table.shape[1]

    @property
    def reused(self) -> int:
        """Number of requested coalitions that the cache contained."""
        return len(self.used.intersection(self._before))

    def of(self, masks: np.ndarray) -> np.ndarray:
        """Return the values (K, outputs) of coalitions (K, n). An error names the coalition that fails."""
        keys = pd.Index(hash_masks(masks), dtype=object)
        needed = keys.unique()
        self.used = self.used.union(needed, sort=False)
        missing = needed.difference(self._known, sort=False).difference(list(self._failed), sort=False)
        if len(missing):
            self._evaluate(masks[pd.Series(np.arange(len(keys)), keys).groupby(level=0).first()[missing].to_numpy()])
        failed = [self._failed[key] for key in self._failed if key in needed]
        if failed:
            raise MethodFailure(
                FAILED, f"game: {len(failed)} of {len(needed)} evaluations failed, first {failed[0]}; correct the game"
            )
        return self._table[self._known.get_indexer(keys)]

    def select_rows(self, masks: np.ndarray) -> pd.DataFrame:
        """Return the coalitions (K, n) whose values are known, as rows of a table of the row store."""
        keys = pd.Index(hash_masks(masks), dtype=object)
        keys = keys[keys.isin(self._known)]
        values = pd.Series([*self._table[self._known.get_indexer(keys)]] if len(keys) else [], dtype=object)
        seconds = np.array([self.file.seconds[key] for key in keys], float)
        return pd.DataFrame({ADDRESS: keys, "values": values, "seconds": seconds})

    def _evaluate(self, masks: np.ndarray) -> None:
        """Evaluate coalitions, and store the values of each call as soon as it ends."""
        done, jobs, goal = 0, self.how.n_jobs, len(self._known) + len(self._failed) + len(masks)
        size, since = self.how.batch or (1 if self.file or jobs > 1 else min(64, len(masks))), time.monotonic()
        with self.file or contextlib.nullcontext(), _open_calls(jobs, self.game, self.how.retries) as call:
            while done < len(masks):
                began = time.monotonic()
                first = done == 0 and self._table is None  # one coalition, because (2, 2) values could be transposed
                batch = masks[done : done + (1 if first else size * jobs * CALLS_PER_ROUND if jobs > 1 else size)]
                parts, calls, done = _split(batch, size), -(-len(batch) // size), done + len(batch)
                while parts:
                    parts = [part for answer in call(parts) for part in self._keep(*answer, goal)]
                seconds = (time.monotonic() - began) / max(1, calls / jobs)
                if self.how.batch is None:
                    size = int(max(1, size * min(2.0, self.how.seconds / max(seconds, 1e-9))))
                size = min(size, self.most)
        self.seconds = (time.monotonic() - since) * jobs / len(masks)

    def _keep(
        self, masks: np.ndarray, values: np.ndarray | None, failure: "_Failure | None", goal: int
    ) -> list[np.ndarray]:
        """Store the values of a call, or a coalition's failure; return parts to evaluate again, to find what fails."""
        good = np.zeros(len(masks), bool) if values is None else (np.abs(values) < MAX_VALUE).all(axis=1)
        if good.any():
            self._store(masks[good], values[good])
        if failure and len(masks) == 1:
            reason = f"coalition {self._name(masks[0])}: {failure}"
            if self.how.on_error == "fail":
                is_game_of_package = isinstance(failure.__cause__, ShapelineError)  # its message has a remedy
                usual = f"; return a finite value per row of masks {masks.shape}, as in {PER_COALITION}"
                remedy = "" if is_game_of_package else usual
                raise ShapelineError(f"{WHERE}: {reason}{remedy}") from failure.__cause__
            self._failed[hash_masks(masks)[0]] = reason
        if self.progress:
            self.progress(len(self._known) - len(self._before), goal - len(self._known) - len(self._failed))
        if failure and failure.out_of_memory:
            self.most = max(1, min(self.most, len(masks) // 2))
        half = (len(masks) + 1) // 2  # of the coalitions of a call that raised; other values name what fails
        return _split(masks[~good], half if values is None else 1) if len(masks) > 1 else []

    def _store(self, masks: np.ndarray, values: np.ndarray) -> None:
        """Store the values of coalitions."""
        self._check_outputs(values)
        keys = np.concatenate([self._known, np.array(hash_masks(masks), dtype=object)])
        self._known = pd.Index(keys, dtype=object)  # not by append, which would infer the type of all keys in each call
        self._table = values if self._table is None else np.concatenate([self._table, values])
        if self.file:
            self.file.keep(self._known, self._table)

    def _check_outputs(self, values: np.ndarray) -> None:
        if self._table is not None and len(self._table) and values.shape[1] != self.outputs:
            counts = f"{self.outputs} values a coalition before and {values.shape[1]} now"
            raise ShapelineError(f"{WHERE}: the game gave {counts}; give as many")

    def _check_cache(self) -> None:
        """Raise ShapelineError if some values of the game differ from those of a cache without identity."""
        masks = self._read_masks(self._known)
        order = np.random.default_rng(0).permutation(len(masks))
        order = order[np.argsort(masks[order].any(axis=1) & ~masks[order].all(axis=1), kind="stable")]
        began, least = time.monotonic(), 2 + MIN_CHECKS
        for number, index in enumerate(order):
            if number >= least and time.monotonic() - began > CHECK_SECONDS:
                return
            _, values, failure = _call(self.game, masks[[index]], self.how.retries)
            if failure:
                continue
            cached = self._table[[index]]
            if values.shape != cached.shape or (np.abs(values - cached) > allow_difference(self._table)).any():
                raise ShapelineError(
                    f"{WHERE}: cache: {self.how.cache} holds {cached[0].tolist()} for the coalition "
                    f"{self._name(masks[index])} and the game gives {values[0].tolist()}; name another file, or say by "
                    "identity= that the game is the same"
                )

    def find_noise(self, limit: int | None) -> str:
        """Return a warning if the game gives other values in a second call, within a limit of all evaluations."""
        new = self._known[len(self._before) :]
        spare = len(new) if limit is None else max(0, limit - self.evaluations)
        return self.repeat_some(new, self.seconds, self.how.n_jobs, min(spare, self.how.batch or spare))

    def find_rounding(self) -> str:
        """Return a warning if a large constant part of the values leaves few digits to their differences."""
        rounding = "" if self._table is None else describe_rounding(self._table)
        return f"values {rounding} inside the game" if rounding else ""

    def repeat_some(self, keys: pd.Index, seconds: float, jobs: int, most: int = MAX_BATCH) -> str:
        """Evaluate up to four of these coalitions again, and return a warning if a value differs.

        seconds: of each of the evaluations, made on so many jobs. The second ones take CHECK_SHARE of the time of the
        first ones, and at least CHECK_SECONDS if values are not stored.
        """
        allowed = max(0.0 if self.file else CHECK_SECONDS, CHECK_SHARE * seconds * len(keys) / jobs)
        most = min(most, int(allowed / max(seconds, 1e-9)))
        places = list(dict.fromkeys([len(keys) // 2, 1, 0, len(keys) - 1]))[:most]
        if self._failed or len(keys) < 2 or not places:
            return ""
        masks, before = self._read_masks(keys[places]), self._table[self._known.get_indexer(keys[places])]
        with contextlib.suppress(ShapelineError), _open_calls(self.how.n_jobs, self.game, 0) as call:
            [(_, now, failure)] = call([masks])
            different = [] if failure else np.argwhere(np.abs(now - before) > allow_difference(self._table))
            if len(different):
                row, output = different[0]
                values = f"{self._name(masks[row])} was {before[row, output]} and then {now[row, output]}"
                remedy = "seed its random numbers, and let no value depend on other rows of masks"
                return f"the game is not repeatable: the value of the coalition {values}; {remedy}"
        return ""

    def _read_masks(self, keys: pd.Index) -> np.ndarray:
        """Return the coalitions (K, n) of texts of 0 and 1."""
        digits = np.array(keys, dtype=f"S{len(self.players)}").view(np.uint8).reshape(-1, len(self.players))
        return digits == ord("1")

    def _name(self, mask: np.ndarray) -> str:
        """Return a coalition as a text with the names of its players."""
        members = np.flatnonzero(mask)
        if len(members) in (0, len(mask)):
            return "of all players" if len(members) else "of no players"
        names = ", ".join(self.players[index] for index in members[:MAX_NAMED])
        return f"{{{names}{', ...' if len(members) > MAX_NAMED else ''}}}"


@dataclass(frozen=True, eq=False)
class OutputGame:
    """A set function as the game of an attribution, where its outputs take the role of instances."""

    evaluate: Callable[[np.ndarray], np.ndarray]  # of coalitions (K, d), to (K, outputs)
    features: Features
    value: str = "game"
    model: ClassVar[SimpleNamespace] = SimpleNamespace(
        framework="function", architecture="game", check_rows=lambda inputs: None
    )

    def having(self, **_) -> "OutputGame":
        """Return the game itself, which has no other backend, baseline or model."""
        return self

    def values(self, inputs: np.ndarray, masks: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
        """Return the values (m, K) of the outputs numbered `inputs` (m,); masks: (K, d), or (m, K, d) of equal rows."""
        return self.evaluate(masks if masks.ndim == 2 else masks[0])[:, inputs].T


def _split(masks: np.ndarray, size: int) -> list[np.ndarray]:
    """Split coalitions into parts of a size."""
    return [masks[start : start + size] for start in range(0, len(masks), size)]


@contextlib.contextmanager
def _open_calls(jobs: int, game: Callable, retries: int) -> Iterator[Callable[[Sequence[np.ndarray]], Iterable]]:
    """Yield a function from parts of the coalitions to the results of `_call`, in the order of completion."""
    if jobs == 1:
        yield lambda parts: (_call(game, part, retries) for part in parts)
        return
    from joblib import delayed

    try:
        with _open_parallel(jobs) as parallel:
            call, parent = delayed(_call_for), os.getpid()
            yield lambda parts: parallel(call(parent, game, part, retries) for part in parts)
    except PicklingError as error:
        cause = str(error.__cause__ or error).strip('" \n').splitlines()[-1]  # of the traceback in the other process
        raise ShapelineError(
            f"{WHERE}: the game cannot be sent to other processes ({cause}); give n_jobs=1, or create what cannot be "
            "pickled inside the game"
        ) from error
    except BrokenExecutor as error:
        raise ShapelineError(
            f"{WHERE}: a process that evaluated the game ended without an answer (too little memory, or a crash of "
            "native code); give a smaller n_jobs, or n_jobs=1"
        ) from error


def _open_parallel(jobs: int):
    """Return joblib's processes; those of a backend without generators, as of multiprocessing, answer together."""
    from joblib import Parallel

    try:
        return Parallel(jobs, return_as="generator_unordered")
    except ValueError:
        return Parallel(jobs)


class _Failure(ShapelineError):
    """The reason why a call of a game failed; its cause is the exception of the game, unless that holds memory."""

    out_of_memory = False


def _call(game: Callable, masks: np.ndarray, retries: int) -> tuple[np.ndarray, np.ndarray | None, _Failure | None]:
    """Return coalitions, their values (K, outputs), None if the game raises, and the failure that retries leave."""
    for _ in range(1 + retries):
        try:
            returned = game(masks.copy())
        except Exception as error:  # noqa: BLE001 (a game may raise any exception)
            values, failure = None, _Failure(describe_exception(error))
            failure.out_of_memory = is_out_of_memory(error)
            failure.__cause__ = None if failure.out_of_memory else error
            continue
        if returned is None:  # of a branch without a result, or of a lost answer
            values, failure = None, _Failure("the game returned None")
            continue
        values = convert_values(WHERE, returned, len(masks))
        usable = np.abs(values) < MAX_VALUE  # not of NaN
        if usable.all():
            return masks, values, None
        first = values[~usable][0]
        failure = _Failure(f"the value is {first}{', too large to subtract' if np.isfinite(first) else ''}")
    return masks, values, failure


def _call_for(parent: int, *arguments) -> tuple[np.ndarray, np.ndarray | None, _Failure | None]:
    """Return `_call` in another process, which ends when the process that gave it the call does."""
    is_loky = multiprocessing.current_process().name.startswith("Loky")  # no process of another backend
    if is_loky and os.getpid() != parent:  # no thread, in which joblib runs the calls of a game within a call
        _end_with(parent)
    return _call(*arguments)


@functools.cache
def _end_with(parent: int) -> None:
    """End this process when its parent is killed; joblib's processes would evaluate on and stay for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_INTERVAL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def describe_rounding(values: np.ndarray) -> str:
    """Return that the values (n, outputs) of an output differ in their last digits alone, and the remedy; else ""."""
    largest, span = np.abs(values).max(axis=0), np.ptp(values, axis=0)
    rough = np.flatnonzero((span > 0) & (span < MIN_STEPS * np.spacing(largest)))
    if not len(rough):
        return ""
    sizes = f"differ by {span[rough[0]]:.2g} and are as large as {largest[rough[0]]:.2g}"
    return f"{sizes}, so that rounding changes scores; subtract a constant"


def hash_masks(masks: np.ndarray) -> list[str]:
    """Return each coalition as a text of 0 and 1."""
    digits = np.ascontiguousarray(masks, np.uint8) + ord("0")
    return digits.view(f"S{masks.shape[1]}").ravel().astype(str).tolist()


def check_names(argument: str, values: object, count: int, noun: str) -> tuple[str, ...]:
    """Return the names of players or outputs. Raises ShapelineError if they do not fit."""
    if values is None:
        return tuple(f"{noun} {index}" for index in range(count))
    if isinstance(values, str | set | frozenset) or not hasattr(values, "__iter__"):  # a set has no order
        raise ShapelineError(f"{WHERE}: {argument} is {values!r}; give a list of {count} names")
    names = tuple(map(str, values))
    if len(names) != count:
        given, wanted = format_count(len(names), "name"), format_count(count, noun)
        raise ShapelineError(f"{WHERE}: {argument} has {given} for {wanted}; give {count}")
    if doubled := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ShapelineError(f"{WHERE}: {argument} has '{doubled[0]}' twice; give each {noun} a name of its own")
    return names


def check_outputs(method: MethodSettings, count: int) -> None:
    """Raise ShapelineError for a method whose estimator reads one output if the game has several."""
    of_one_output = method.method.batch_estimator and not method.method.multi_output_estimator
    if count > 1 and (method.arguments.get("n_features") or of_one_output):
        raise ShapelineError(
            f"{WHERE}: {method.name} with these settings explains one output and the game has {count}; give one of "
            "them, as lambda masks: game(masks)[:, 0], or use gp_shapley"
        )


def count_processes(n_jobs: object) -> int:
    """Return the number of processes of n_jobs; by joblib's rule for numbers below 0. Raises ShapelineError."""
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ShapelineError(f"{WHERE}: n_jobs is {n_jobs!r}; give a whole number other than 0, -1 for all processors")
    from joblib import effective_n_jobs

    return 1 if n_jobs == 1 else effective_n_jobs(int(n_jobs))
