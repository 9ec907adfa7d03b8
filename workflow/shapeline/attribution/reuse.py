"""Rows of score files that need not be made again: an instance more costs one instance.

Scores of an instance depend on nothing that is said of the others. A row is taken over where all that decides it is
as it was: the job's settings and code, the model, the reference, the data's card, the device, the packages' versions,
and the instance's own input. Not the model's form: forms are verified to agree, and which of two equally fast ones is
taken is the clock's doing. Its seconds are those that it took when it was made.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from shapeline import scores
from shapeline.attribution.subjects import Subject, targets
from shapeline.engine.cache import key_of
from shapeline.errors import ShapelineError
from shapeline.methods.registry import METHODS
from shapeline.operations import jobs
from shapeline.operations.versions import imported

log = logging.getLogger("shapeline")
ORDER = ["instance", "target", "repeat", "budget"]
OF_ALL_DATA = ("data", "external")  # families whose scores depend on more than the instance's input


@dataclass(frozen=True)
class Reused:
    """What need not be made again. rows: of score files, None where there are none; rest: the instances to be made.

    stated: what the file made now says of itself, by which others find its rows.
    """

    rows: pd.DataFrame | None
    rest: pd.DataFrame
    stated: dict

    def completed(self, make: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
        """All rows of the share, as if all had been made now; make: from instances to their rows."""
        parts = [] if self.rows is None else [self.rows]
        parts += [make(self.rest)] if len(self.rest) or not parts else []
        return pd.concat(parts, ignore_index=True).sort_values(ORDER, ignore_index=True)


def reused(share: pd.DataFrame, subject: Subject, settings: dict, label: str, job) -> Reused:
    """What of a share was made before: in the label's folder, before this run, or in files of the same question.

    settings: of the attribute job; label seeds its draws. job: Snakemake's, with input, output and resources.
    """
    wanted = key(subject, settings, job.input, label)
    if wanted is None:
        return Reused(None, share, {})
    pairs = [*zip(share["instance"], targets(share), strict=True)]
    digests = dict(zip(pairs, map(_digest, subject.inputs(share)), strict=True))
    folder, others = Path(job.output.scores).parent, filter(None, job.resources.get("same", "").split(os.pathsep))
    found, left = [], dict(digests)
    for path in [*sorted(folder.glob("*.parquet")), *jobs.kept_files(folder), *map(Path, others)]:
        rows = _of_key(path, wanted, left)
        if rows is not None and len(rows):
            found.append(rows)
            for pair in set(_pairs(rows)):
                del left[pair]
    if found:
        log.info("%d of %d instances as they were made before", len(share) - len(left), len(share))
    rest = share[[pair in left for pair in pairs]].reset_index(drop=True)
    stated = {"rows_key": wanted, "inputs": {str(instance): digest for (instance, _), digest in digests.items()}}
    return Reused(pd.concat(found, ignore_index=True) if found else None, rest, stated)


def key(subject: Subject, settings: dict, files, label: str) -> str | None:
    """What decides every row of a job beside the instance; None where a row depends on data that the key has not.

    files: the job's input. label: seeds draws.
    """
    method = METHODS[settings["method"]["method"]]
    if method.family in OF_ALL_DATA or settings["method"].get("background"):
        return None
    decisive = [
        files.get("weights"),
        files.dataset_card,
        *files.get("user", ()),
        *files.get("reference", ()),
        *files.own,
    ]
    of_all = {name: setting for name, setting in settings.items() if name != "instances"}  # how many, not which
    facts = {
        "settings": of_all,
        "label": None if method.exact else label,
        "device": subject.device,
        "versions": imported(),
        "architecture": subject.model and subject.model.architecture,
    }
    if subject.reference is not None and subject.reference.rows is not None:
        facts["reference"] = _digest(subject.reference.rows)
    return key_of(filter(None, decisive), facts)


def _of_key(path: Path, wanted: str, left: dict[tuple, str]) -> pd.DataFrame | None:
    """Instances of a file made with this key that did not fail and whose inputs are those that are wanted."""
    try:
        said = scores.metadata(path)
        if said.get("rows_key") != wanted:
            return None
        rows = scores.read(path)
    except (ShapelineError, OSError):  # damaged, of another kind, or gone: then it is made anew
        return None
    failed = set(_pairs(rows[rows["status"] != "ok"]))
    made_of = said["inputs"]
    fits = {pair for pair, digest in left.items() if pair not in failed and made_of.get(str(pair[0])) == digest}
    return rows[[pair in fits for pair in _pairs(rows)]]


def _pairs(rows: pd.DataFrame) -> list[tuple]:
    return [*zip(rows["instance"], rows["target"], strict=True)]


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()[:16]
