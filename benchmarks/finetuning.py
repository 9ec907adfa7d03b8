"""Fine-tune a classification head on a text encoder: python -m benchmarks.finetuning ENCODER DATA FOLDER

ENCODER is the folder of an encoder of transformers, for example all-MiniLM-L6-v2. DATA is the archive of IMDB, or a
folder with test.csv and train.csv (or train_subset.csv.gz) of AG News. The pooler and the classifier are trained on a
sample of the training rows, the layers below stay. FOLDER gets the classifier with its tokenizer, and FOLDER.csv a
sample of the official test rows, which `shapeline init FOLDER.csv --model FOLDER` explains.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch

from shapeline.datasets import corpora

NAMES = {"imdb": ("negative", "positive"), "ag_news": ("World", "Sports", "Business", "Sci/Tech")}
BATCH, STEPS, RATE, DECAY = 32, 60, 1e-3, 1e-2


def read_texts(path: Path) -> tuple[dict, tuple[str, ...]]:
    """Return texts with labels and the official split, and the names of the classes."""
    if path.is_file():
        return corpora.read_imdb({path.name: path}), NAMES["imdb"]
    training = next(one for one in map(path.joinpath, ("train.csv", "train_subset.csv.gz")) if one.exists())
    return corpora.read_agnews({"train.csv": training, "test.csv": path / "test.csv"}), NAMES["ag_news"]


def embed(model, tokenizer, texts: list[str]) -> torch.Tensor:
    """Return the last hidden state (n, width) of the first token of each text, batched by length."""
    order, states = sorted(range(len(texts)), key=lambda row: len(texts[row])), {}
    for rows in np.array_split(order, -(-len(order) // BATCH)):
        batch = tokenizer([texts[row] for row in rows], truncation=True, padding=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = model.base_model(**batch).last_hidden_state[:, 0]
        states.update(zip(rows.tolist(), hidden, strict=True))
        print(f"{len(states)}/{len(texts)} texts", flush=True)
    return torch.stack([states[row] for row in range(len(texts))]).clone()


def predict(model, states: torch.Tensor) -> torch.Tensor:
    """Return the logits (n, classes) of states (n, width)."""
    return model.classifier(model.dropout(model.base_model.pooler(states[:, None])))


def train_head(model, states: torch.Tensor, labels: torch.Tensor) -> None:
    """Train pooler and classifier on all states at once."""
    head = [*model.base_model.pooler.parameters(), *model.classifier.parameters()]
    optimiser = torch.optim.AdamW(head, lr=RATE, weight_decay=DECAY)
    model.train()
    for _ in range(STEPS):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(predict(model, states), labels).backward()
        optimiser.step()
    model.eval()


def main() -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("encoder", "data", "folder"):
        options.add_argument(name, type=Path)
    for name, default in (("train", 2000), ("test", 500), ("length", 128)):
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
    ).eval()
    own, held_out = train_rows[: chosen.train], test_rows[: chosen.test]
    states = {
        part: embed(model, tokenizer, [texts[row] for row in rows]) for part, rows in (("own", own), ("out", held_out))
    }
    train_head(model, states["own"], torch.tensor(labels[own]))
    right = (predict(model, states["out"]).argmax(1).numpy() == labels[held_out]).mean()
    print(f"{len(own):,} of {len(train_rows):,} training rows; accuracy on {len(held_out):,} test rows: {right:.3f}")
    model.save_pretrained(chosen.folder)
    tokenizer.save_pretrained(chosen.folder)
    with chosen.folder.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((texts[row], names[labels[row]]) for row in held_out)])


if __name__ == "__main__":
    main()
