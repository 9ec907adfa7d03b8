"""A folder of transformers, as save_pretrained writes it: what it says of itself, before anything in it is loaded.

Nothing is downloaded, no code from it is run, and no pickle is read."""

import importlib
import importlib.util
import json
import os
import re
from pathlib import Path
from types import ModuleType

from shapeline.datasets.sources import FOLDER, expand
from shapeline.errors import ShapelineError

INSTALL = "pip install -c constraints.txt -e '.[text]'"
HEAD = "ForSequenceClassification"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZER = "tokenizer.json"
CONFIGS = ("config.json", "tokenizer_config.json")
ENDLESS = 1_000_000  # a length from which on a tokenizer says that it has none
USUAL = 512  # tokens of a document where nothing says how many
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def names_folder(source: str | None) -> bool:
    """Whether the text is of the form path/to/folder, with a slash and without a file's suffix."""
    return bool(source and re.match(FOLDER, source))


def files_of(source: str, weights: bool) -> list[str]:
    """The files of a folder that a job reads, as its inputs; without weights those of the tokenizer."""
    folder = expand(source)
    kept = [file for file in folder.glob("*") if file.is_file() and (weights or file.suffix != ".safetensors")]
    return sorted(str(file) for file in kept if file.suffix in (".json", ".txt", ".model", ".safetensors"))


def check_tokenizer(source: str) -> None:
    """ShapelineError where a folder has no fast tokenizer that can be read here."""
    folder = _checked(source)
    if not (folder / TOKENIZER).is_file():
        slow = next((name for name in ("vocab.txt", "vocab.json", "spiece.model") if (folder / name).is_file()), None)
        has = f"only a slow tokenizer ({slow})" if slow else "no tokenizer"
        raise ShapelineError(
            f"{folder} has {has}: there is no {TOKENIZER}; save the fast one there, "
            "AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        )


def check_model(source: str) -> None:
    """ShapelineError where a folder holds no text classifier that can be read here."""
    folder = _checked(source)
    made = _json(folder / "config.json").get("architectures") or ["nothing that it names"]
    if not any(name.endswith(HEAD) for name in made):
        raise ShapelineError(
            f"{folder} holds {made[0]}, which is no text classifier; give a model that ends in {HEAD} "
            "(AutoModelForSequenceClassification)"
        )
    if not any((folder / name).is_file() for name in (WEIGHTS, INDEX)):
        pickled = next((name for name in PICKLES if (folder / name).is_file()), None)
        has = f"only pickled weights ({pickled}), which are never read" if pickled else "no weights"
        raise ShapelineError(f"{folder} has {has}; save it with model.save_pretrained, which writes {WEIGHTS}")


def same_tokenizer(one: str, other: str) -> bool:
    """Whether two folders have the same tokenizer; also where one of them has none."""
    files = [expand(source) / TOKENIZER for source in (one, other)]
    return not all(file.is_file() for file in files) or files[0].read_bytes() == files[1].read_bytes()


def has_mask(source: str) -> bool:
    """Whether the tokenizer of a folder has a mask token, as far as its settings tell."""
    file = expand(source) / "tokenizer_config.json"
    return not file.is_file() or bool(_json(file).get("mask_token"))


def most_tokens(source: str) -> int:
    """How many tokens a document has at most, as the folder says."""
    folder = expand(source)
    config = _json(folder / "config.json") if (folder / "config.json").is_file() else {}
    own = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    said = own.get("model_max_length"), config.get("max_position_embeddings"), config.get("n_positions")
    return min([int(one) for one in said if isinstance(one, int | float) and 0 < one < ENDLESS], default=USUAL)


def transformers() -> ModuleType:
    """The library, without the network; ShapelineError where it is not installed."""
    os.environ.update(OFFLINE)
    if importlib.util.find_spec("transformers") is None:
        raise ShapelineError(f"reading it takes transformers, which is not installed: {INSTALL}")
    library = importlib.import_module("transformers")
    library.logging.disable_progress_bar()
    return library


def _checked(source: str) -> Path:
    """The folder; ShapelineError where it is not there, asks for code of its own, or cannot be read here."""
    folder = expand(source)
    if not folder.is_dir():
        raise ShapelineError(f"there is no folder {folder} (paths start at the repository root)")
    if not (folder / "config.json").is_file():
        raise ShapelineError(f"{folder} has no config.json; save the model there with model.save_pretrained")
    if (folder / "adapter_config.json").is_file():
        raise ShapelineError(
            f"{folder} holds an adapter; merge it into its model (merge_and_unload) and save the whole"
        )
    for name in CONFIGS:
        if (folder / name).is_file() and "auto_map" in _json(folder / name):
            raise ShapelineError(
                f"{folder} asks to run code of its own (auto_map in {name}), which is never done; give a model of an "
                "architecture that transformers has"
            )
    if importlib.util.find_spec("transformers") is None:
        raise ShapelineError(f"{folder}: reading it takes transformers, which is not installed: {INSTALL}")
    return folder


def _json(file: Path) -> dict:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ShapelineError(f"{file} is not readable as JSON ({error}); save it again") from error
    if not isinstance(said, dict):
        raise ShapelineError(f"{file} holds no settings; save it again")
    return said
