"""Fine-tune a text encoder for classification: python -m benchmarks.finetuning ENCODER DATA FOLDER

ENCODER is the folder of an encoder of transformers, for example all-MiniLM-L6-v2. DATA is the archive of IMDB, or a
folder with test.csv and train.csv (or train_subset.csv.gz) of AG News. The last --layers, the pooler and a new
classifier are trained on a sample of the training rows, the layers below stay. FOLDER gets the classifier with its
tokenizer, and FOLDER.csv a sample of the official test rows, which `shapeline init FOLDER.csv --model FOLDER` explains.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch

from shapeline.datasets import text_sources

NAMES = {"imdb": ("negative", "positive"), "ag_news": ("World", "Sports", "Business", "Sci/Tech")}
BATCH, EPOCHS, RATE, HEAD_RATE, DECAY = 16, 3, 2e-4, 1e-3, 1e-2


def read_texts(path: Path) -> tuple[dict, tuple[str, ...]]:
    """Return texts with labels and the official split, and the names of the classes."""
    if path.is_file():
        return text_sources.read_imdb({path.name: path}), NAMES["imdb"]
    named = [path / name for name in ("train.csv", "train_subset.csv.gz")]
    training = next((one for one in named if one.exists()), named[0])
    return text_sources.read_agnews({"train.csv": training, "test.csv": path / "test.csv"}), NAMES["ag_news"]


def cut_batches(lengths: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Return the rows of each batch, of texts of similar length, in random order."""
    order = np.argsort(lengths + random.random(len(lengths)), kind="stable")
    batches = np.array_split(order, -(-len(order) // BATCH))
    return [batches[place] for place in random.permutation(len(batches))]


def train(model, tokenizer, texts: list[str], labels: np.ndarray, layers: int) -> None:
    """Train the last layers, the pooler and the classifier; the rates fall linearly to zero."""
    model.requires_grad_(False)
    trained = [*model.base_model.encoder.layer[len(model.base_model.encoder.layer) - layers :], model.base_model.pooler]
    groups = [{"params": [weight for part in trained for weight in part.parameters()], "lr": RATE}]
    groups.append({"params": [*model.classifier.parameters()], "lr": HEAD_RATE})
    for group in groups:
        for weight in group["params"]:
            weight.requires_grad_(True)
    optimiser, random = torch.optim.AdamW(groups, weight_decay=DECAY), np.random.default_rng(0)
    lengths = np.array([len(ids) for ids in tokenizer(texts, truncation=True)["input_ids"]])
    steps = [rows for _ in range(EPOCHS) for rows in cut_batches(lengths, random)]
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, len(steps))
    model.train()
    for number, rows in enumerate(steps, 1):
        batch = tokenizer([texts[row] for row in rows], truncation=True, padding=True, return_tensors="pt")
        loss = model(**batch, labels=torch.tensor(labels[rows])).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        falling.step()
        print(f"step {number} of {len(steps)}: loss {loss.item():.3f}", flush=True)
    model.eval()


def predict(model, tokenizer, texts: list[str]) -> np.ndarray:
    """Return the predicted class of each text."""
    found = np.empty(len(texts), int)
    for rows in cut_batches(np.array([*map(len, texts)]), np.random.default_rng(0)):
        batch = tokenizer([texts[row] for row in rows], truncation=True, padding=True, return_tensors="pt")
        with torch.inference_mode():
            found[rows] = model(**batch).logits.argmax(1).numpy()
    return found


def main() -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("encoder", "data", "folder"):
        options.add_argument(name, type=Path)
    for name, default in (("train", 2000), ("test", 500), ("length", 128), ("layers", 2)):
        options.add_argument(f"--{name}", type=int, default=default)
    chosen = options.parse_args()
    records, names = read_texts(chosen.data)
    random, texts, labels = np.random.default_rng(0), records["texts"], records["labels"]
    train_rows, test_rows = (random.permutation(np.flatnonzero(records["split"] == part)) for part in (0, 2))
    tokenizer = AutoTokenizer.from_pretrained(chosen.encoder, local_files_only=True)
    tokenizer.model_max_length = chosen.length
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        chosen.encoder, num_labels=len(names), id2label=dict(enumerate(names)), local_files_only=True
    )
    own, held_out = train_rows[: chosen.train], test_rows[: chosen.test]
    train(model, tokenizer, [texts[row] for row in own], labels[own], chosen.layers)
    right = (predict(model, tokenizer, [texts[row] for row in held_out]) == labels[held_out]).mean()
    print(f"{len(own):,} of {len(train_rows):,} training rows; accuracy on {len(held_out):,} test rows: {right:.3f}")
    model.save_pretrained(chosen.folder)
    tokenizer.save_pretrained(chosen.folder)
    with chosen.folder.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((texts[row], names[labels[row]]) for row in held_out)])


if __name__ == "__main__":
    main()
