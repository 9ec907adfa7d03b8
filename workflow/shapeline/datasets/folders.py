"""A folder of transformers, as save_pretrained writes it: what it says of itself, before anything in it is loaded.

Nothing is downloaded, no code from it is run, and no pickle is read."""

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from shapeline.datasets.entries import FOLDER
from shapeline.datasets.sources import expand
from shapeline.errors import ShapelineError, describe_missing, is_installed

HEADS = {"text": "ForSequenceClassification", "image": "ForImageClassification"}  # by the kind of a dataset
GENERATORS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
# Models of images that give each patch its place before anything else, and read the class from a token of its own:
# those whose patches can be left out.
LEAVING_OUT = ("vit", "deit", "vit_msn")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZER, PROCESSOR = "tokenizer.json", "preprocessor_config.json"
CONFIGS = ("config.json", "tokenizer_config.json", PROCESSOR)
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
    """Return whether the text is of the form path/to/folder, with a slash and without a file's suffix."""
    return bool(source and re.match(FOLDER, source))


def list_files(source: str, weights: bool) -> list[str]:
    """Return the files of a folder that a job reads, as its inputs; without weights those of the tokenizer."""
    folder = expand(source)
    files = [file for file in folder.glob("*") if file.is_file() and (weights or file.suffix != ".safetensors")]
    return sorted(str(file) for file in files if file.suffix in (".json", ".txt", ".model", ".safetensors"))


def check_tokenizer(source: str) -> None:
    """Raise ShapelineError if a folder has no fast tokenizer that can be read here."""
    folder = _check_folder(source)
    if not (folder / TOKENIZER).is_file():
        slow = next((name for name in ("vocab.txt", "vocab.json", "spiece.model") if (folder / name).is_file()), None)
        has = f"only a slow tokenizer ({slow})" if slow else "no tokenizer"
        raise ShapelineError(
            f"{folder}: has {has}: there is no {TOKENIZER}; save the fast one there, "
            "AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
        )


def find_kind(source: str) -> str:
    """Return the kind of data of a folder's model, "text" if it does not state one. Raises ShapelineError."""
    return "image" if any(HEADS["image"] in name for name in _describe_model(source)) else "text"


def check_model(source: str, kind: str) -> None:
    """Raise ShapelineError if a folder holds no classifier of this kind of data ("text", "image") that can be read."""
    types, folder, head = _describe_model(source), expand(source), HEADS[kind]
    if not any(head in name for name in types):
        raise ShapelineError(
            f"{folder}: holds {types[0]}, which is no {kind} classifier; give a model that ends in {head} "
            f"(AutoModel{head})"
        )
    if kind == "image":
        normalisation(source)
    _check_weights(folder)


def check_generator(source: str) -> None:
    """Raise ShapelineError if a folder holds no causal or sequence-to-sequence model that can be read."""
    types = _describe_model(source)
    if not any(name.endswith(GENERATORS) for name in types):
        raise ShapelineError(
            f"{expand(source)}: holds {types[0]}, which generates no text; give a model that ends in ForCausalLM, "
            "LMHeadModel or ForConditionalGeneration"
        )
    _check_weights(expand(source))


def _check_weights(folder: Path) -> None:
    if not any((folder / name).is_file() for name in (WEIGHTS, INDEX)):
        pickled = next((name for name in PICKLES if (folder / name).is_file()), None)
        has = f"only pickled weights ({pickled}), which are never read" if pickled else "no weights"
        raise ShapelineError(f"{folder}: has {has}; save it with model.save_pretrained, which writes {WEIGHTS}")


def normalisation(source: str) -> dict[str, float | list[float]]:
    """Return `scale`, `mean` and `deviation` of a folder's image processor. Raises ShapelineError if it has none."""
    file = expand(source) / PROCESSOR
    if not file.is_file():
        raise ShapelineError(
            f"{file.parent}: has no {PROCESSOR}, which states how images are scaled; save the image processor there, "
            "AutoImageProcessor.from_pretrained(...).save_pretrained(folder)"
        )
    config, channels = _read_json(file), _count_channels(source)
    scale = 255 * config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 255.0
    mean, deviation = config.get("image_mean"), config.get("image_std")
    if not config.get("do_normalize", mean is not None):
        mean, deviation = 0.0, 1.0
    mean, deviation = ([one] * channels if isinstance(one, int | float) else one for one in (mean, deviation))
    lists = [each for each in (mean, deviation) if isinstance(each, list) and len(each) == channels]
    are_numbers = all(isinstance(number, int | float) for each in lists for number in each)
    if config.get("rescale_offset") or len(lists) < 2 or not are_numbers:
        raise ShapelineError(
            f"{file}: does not say how images of {channels} channel(s) are scaled (rescale_factor, and image_mean and "
            "image_std, one number per channel); add them"
        )
    return {"scale": scale, "mean": mean, "deviation": deviation}


def find_image_problem(source: str, shape: Sequence[int]) -> str | None:
    """Return why images (channels, height, width) do not fit the model of a folder; None if they do."""
    channels, sides = _count_channels(source), _find_sides(source)
    if shape[0] != channels:
        color = {1: "grey", 3: "rgb"}.get(channels, "")
        remedy = f"; set the dataset's color: {color}" if color else ""
        return f"{source} takes images of {channels} channel(s) and the dataset has {shape[0]}{remedy}"
    if sides and list(shape[1:]) != sides:
        needed, actual = ("x".join(map(str, each)) for each in (sides, shape[1:]))
        return f"{source} takes images of {needed} pixels and the dataset has {actual}; set the dataset's size: {sides}"
    return None


def find_patch_side(source: str) -> int | None:
    """Return the side of the patches that the model of a folder can leave out; None if it cannot."""
    config = _read_json(expand(source) / "config.json")
    return config.get("patch_size") if config.get("model_type") in LEAVING_OUT else None


def changes_its_grid(source: str) -> bool:
    """Return whether the model of a folder merges patches between stages, as a Swin does."""
    config = _read_json(expand(source) / "config.json")
    return any(isinstance(config.get(key), list) for key in ("num_heads", "num_attention_heads"))


def find_image_shape(source: str) -> tuple[int, int, int] | None:
    """Return (channels, height, width) of the images of a folder's model; None if any size fits."""
    sides = _find_sides(source)
    return (_count_channels(source), *sides) if sides else None


def _count_channels(source: str) -> int:
    return _read_json(expand(source) / "config.json").get("num_channels", 3)


def _find_sides(source: str) -> list[int] | None:
    """Return [height, width] of a model's images, None of any: its own with a place per patch, else its processor's."""
    processor = _read_json(expand(source) / PROCESSOR)
    size = processor.get("crop_size") if processor.get("do_center_crop") else processor.get("size")
    size = size if processor.get("do_resize", True) or processor.get("do_center_crop") else None
    config = _read_json(expand(source) / "config.json")
    fixed = config.get("image_size") if "patch_size" in config and "num_attention_heads" in config else None
    for value in (fixed, size):
        if isinstance(value, dict):
            value = [value.get("height"), value.get("width")]
        elif isinstance(value, int):
            value = [value, value]
        if isinstance(value, list) and len(value) == 2 and all(isinstance(side, int) for side in value):
            return value
    return None


def have_same_tokenizer(one: str, other: str) -> bool:
    """Return whether two folders have the same tokenizer; also where one of them has none."""
    files = [expand(source) / TOKENIZER for source in (one, other)]
    return not all(file.is_file() for file in files) or files[0].read_bytes() == files[1].read_bytes()


def has_mask(source: str) -> bool:
    """Return whether the tokenizer of a folder has a mask token, as far as its settings tell."""
    file = expand(source) / "tokenizer_config.json"
    return not file.is_file() or bool(_read_json(file).get("mask_token"))


def limit_tokens(source: str) -> int:
    """Return how many tokens a document has at most, as the folder says."""
    folder = expand(source)
    config = _read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    settings = _read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    lengths = settings.get("model_max_length"), config.get("max_position_embeddings"), config.get("n_positions")
    return min([int(one) for one in lengths if isinstance(one, int | float) and 0 < one < ENDLESS], default=USUAL)


def transformers() -> ModuleType:
    """Return the library, without the network. Raises ShapelineError if it is not installed."""
    os.environ.update(OFFLINE)
    if not is_installed("transformers"):
        raise ShapelineError(f"it cannot be read: {describe_missing('transformers')}")
    library = importlib.import_module("transformers")
    library.logging.disable_progress_bar()
    return library


def _check_folder(source: str) -> Path:
    """Return the folder. Raises ShapelineError if it is not there, asks for code of its own, or cannot be read here."""
    folder = expand(source)
    if not folder.is_dir():
        raise ShapelineError(f"{folder}: there is no such folder; paths start at the folder of the run")
    if (folder / "MLmodel").is_file():
        raise ShapelineError(
            f"{folder}: holds a model of MLflow; load it in a function of rows (framework: function), or name its "
            ".skops or .keras file"
        )
    if not (folder / "config.json").is_file():
        raise ShapelineError(f"{folder}: has no config.json; save the model there with model.save_pretrained")
    if (folder / "adapter_config.json").is_file():
        raise ShapelineError(
            f"{folder}: holds an adapter; merge it into its model (merge_and_unload) and save the whole"
        )
    for name in CONFIGS:
        if (folder / name).is_file() and "auto_map" in _read_json(folder / name):
            raise ShapelineError(
                f"{folder}: requires code of its own (auto_map in {name}), which is never done; give a model of an "
                "architecture that transformers has"
            )
    if not is_installed("transformers"):
        raise ShapelineError(f"{folder}: it cannot be read: {describe_missing('transformers')}")
    return folder


def _describe_model(source: str) -> list[str]:
    return _read_json(_check_folder(source) / "config.json").get("architectures") or ["nothing that it names"]


def _read_json(file: Path) -> dict:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ShapelineError(f"{file}: is not readable as JSON ({error}); save it again") from error
    if not isinstance(content, dict):
        raise ShapelineError(f"{file}: holds no settings; save it again")
    return content
