"""Yahoo! Answers as pre-processed documents: lower case, without stop words, the 5,000 most frequent words.

The function that examples/yahoo_documents.yaml names. The folder holds train_texts.txt and test_texts.txt, a document per
line, and train_labels.txt and test_labels.txt, the number of its class.
"""

import numpy as np

from shapeline.datasets.sources import TEST, TRAIN, describe_subset, expand

PARTS = {"train": TRAIN, "test": TEST}
CLASSES = (
    "Society & Culture",
    "Politics & Government",
    "Science & Mathematics",
    "Health",
    "Education & Reference",
    "Computers & Internet",
    "Sports",
    "Business & Finance",
    "Entertainment & Music",
    "Family & Relationships",
)


def read(path: str) -> dict:
    """The documents of both parts; a test document that is also a training document is left out and counted."""
    folder = expand(path)
    texts = {part: (folder / f"{part}_texts.txt").read_text(encoding="utf-8").splitlines() for part in PARTS}
    labels = {part: np.loadtxt(folder / f"{part}_labels.txt", int) for part in PARTS}
    known = set(texts["train"])
    new = np.array([text not in known for text in texts["test"]])
    texts["test"] = [text for text, is_new in zip(texts["test"], new, strict=True) if is_new]
    labels["test"] = labels["test"][new]
    rows = {f"{part}_texts.txt": len(texts[part]) for part in PARTS}
    return {
        "texts": texts["train"] + texts["test"],
        "labels": np.concatenate([labels[part] for part in PARTS]),
        "class_names": CLASSES,
        "split": np.repeat([*PARTS.values()], [*rows.values()]),
        "subset": f"{describe_subset(rows, 'yahoo_answers_csv.tgz')}, another version of the data: pre-processed",
        "notes": [f"{(~new).sum()} test documents that are also training documents were left out"],
    }
