"""Fine-tune a classification head on a text encoder: python -m benchmarks.finetuning ENCODER DATA FOLDER

ENCODER is the folder of an encoder of transformers, for example all-MiniLM-L6-v2. DATA is the archive of IMDB, or a
folder with test.csv and train.csv (or train_subset.csv.gz) of AG News. The head and the last layers are trained on
sampled training rows for one epoch. FOLDER gets the classifier with its tokenizer, and FOLDER.csv a sample of the
official test rows, which `shapeline init FOLDER.csv --model FOLDER` explains.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch

from shapeline.datasets import agnews, imdb

NAMES = {"imdb": ("negative", "positive"), "ag_news": ("World", "Sports", "Business", "Sci/Tech")}
BATCH, RATE, RATE_OF_HEAD = 16, 5e-5, 1e-3


def read_texts(path: Path) -> tuple[dict, tuple[str, ...]]:
    """Return texts with labels and the official split, and the names of the classes."""
    if path.is_file():
        return imdb.read({path.name: path}), NAMES["imdb"]
    training = next(one for one in map(path.joinpath, ("train.csv", "train_subset.csv.gz")) if one.exists())
    return agnews.read({"train.csv": training, "test.csv": path / "test.csv"}), NAMES["ag_news"]


def build(encoder: Path, names: tuple[str, ...], layers: int):
    """Return the encoder with a new head, of which so many layers are trained, and the optimiser."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        encoder, num_labels=len(names), id2label=dict(enumerate(names)), local_files_only=True
    )
    model.requires_grad_(False)
    head = [*model.classifier.parameters()]
    upper = [
        one
        for part in (*model.base_model.encoder.layer[-layers:], model.base_model.pooler)
        for one in part.parameters()
    ]
    for one in (*head, *upper):
        one.requires_grad_(True)
    return model, torch.optim.AdamW([{"params": head, "lr": RATE_OF_HEAD}, {"params": upper, "lr": RATE}])


def train(model, optimiser, batches) -> float:
    """Train for one epoch with a falling rate; return the mean loss of the last tenth."""
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, len(batches))
    losses = []
    for batch in batches:
        loss = model(**batch).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        losses.append(float(loss.detach()))
        print(f"{len(losses)}/{len(batches)} batches, loss {np.mean(losses[-20:]):.3f}", flush=True)
    return float(np.mean(losses[-len(losses) // 10 :]))


def main() -> None:
    from transformers import AutoTokenizer

    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("encoder", "data", "folder"):
        options.add_argument(name, type=Path)
    for name, default in (("train", 3000), ("test", 1000), ("length", 128), ("layers", 3)):
        options.add_argument(f"--{name}", type=int, default=default)
    chosen = options.parse_args()
    records, names = read_texts(chosen.data)
    random, texts, labels = np.random.default_rng(0), records["texts"], records["labels"]
    train_rows, test_rows = (random.permutation(np.flatnonzero(records["split"] == part)) for part in (0, 2))
    tokenizer = AutoTokenizer.from_pretrained(chosen.encoder, local_files_only=True)
    tokenizer.model_max_length = chosen.length
    model, optimiser = build(chosen.encoder, names, chosen.layers)
    batches = []
    for rows in np.array_split(train_rows[: chosen.train], -(-chosen.train // BATCH)):
        batch = tokenizer([texts[row] for row in rows], truncation=True, padding=True, return_tensors="pt")
        batches.append({**batch, "labels": torch.tensor(labels[rows])})
    began = time.process_time()
    loss = train(model.train(), optimiser, batches)
    print(f"{chosen.train} of {len(train_rows):,} training rows: loss {loss:.3f}, {time.process_time() - began:.0f} s")
    model.save_pretrained(chosen.folder)
    tokenizer.save_pretrained(chosen.folder)
    with chosen.folder.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(texts[row], names[labels[row]]) for row in test_rows[: chosen.test]]
        csv.writer(file).writerows([("text", "label"), *rows])


if __name__ == "__main__":
    main()
