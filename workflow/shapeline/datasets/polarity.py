"""Sentence polarity (Pang & Lee 2005): rt-polarity.neg and rt-polarity.pos, one sentence a line."""

from pathlib import Path

import numpy as np

from shapeline.datasets import archive
from shapeline.datasets.limits import of
from shapeline.errors import ShapelineError

FILES = ("rt-polarity.neg", "rt-polarity.pos")


def read(paths: dict[str, Path], limits: dict | None = None) -> dict:
    """The sentences, negative first, in the order of the files; no official split.

    paths: official file name -> .tar.gz or folder. A file that is not UTF-8 is read as Windows-1252, the encoding of
    the official files. Raises ShapelineError.
    """
    (path,) = paths.values()
    sentences_of = {}
    with archive.open_files(path, lambda name: name.split("/")[-1] in FILES, of(limits)) as files:
        for name, stream in files:
            content = stream.read()
            try:
                sentences = content.decode("utf-8")
            except UnicodeDecodeError:
                sentences = content.decode("cp1252", "surrogateescape")
            # Not splitlines(), which also breaks at characters inside a sentence.
            sentences_of[name.split("/")[-1]] = [line.strip() for line in sentences.split("\n")]
    for name in FILES:
        if name not in sentences_of:
            raise ShapelineError(f"{path}: holds no {name}, which polarity needs.")
        if sentences_of[name][-1] == "":
            sentences_of[name].pop()  # what follows the last line's end
    return {
        "texts": [sentence for name in FILES for sentence in sentences_of[name]],
        "labels": np.repeat(np.arange(2), [len(sentences_of[name]) for name in FILES]),
    }
