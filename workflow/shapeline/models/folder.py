"""A classifier of texts or images in a folder of transformers: config.json, safetensors and its preprocessing."""

import json
import re
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from shapeline.datasets import folders
from shapeline.datasets.sources import expand
from shapeline.errors import ShapelineError
from shapeline.models import torch_models
from shapeline.models.classifier import Classifier
from shapeline.models.text_network import TextNetwork, find_task, limit_positions

# Errors of from_pretrained for files that are damaged, of another version, or need a missing package.
LOADING_ERRORS = (OSError, ValueError, RuntimeError, ImportError, KeyError, TypeError, AttributeError, SafetensorError)
DEFAULT_LABEL = re.compile(r"LABEL_\d+")


def for_dataset(settings: dict[str, Any], card: dict[str, Any]) -> Classifier:
    """Return the classifier in the folder of transformers of these settings, for the data of a card."""
    source, kind = settings["source"], card["kind"]
    if kind == "text" and "mask_id" not in card:
        raise ShapelineError(
            f"models: {source} takes texts cut by its own tokenizer; set datasets.{card['name']}.tokenizer: {source}"
        )
    folders.check_model(source, kind)
    model = _read(source, kind)
    if find_task(model) != "classification":
        given = "several labels" if find_task(model) == "multilabel" else "a number"
        remedy = "explain it with shapeline.explain" if kind == "text" else "give another model"
        raise ShapelineError(
            f"models: {source} gives {given} per {kind}, and the dataset has one class per record; {remedy}"
        )
    sizes = {
        "config": json.loads(model.config.to_json_string(use_diff=False)) | {"dtype": "float32", "_name_or_path": ""},
        "order": _match_classes(source, model, list(card["classes"])),
        **(_read_text_sizes(source, model, card) if kind == "text" else _read_image_sizes(source, card)),
    }
    return _build_classifier(source, model, sizes, card.get("vocabulary_digest"))


def restore(metadata: dict[str, Any], arrays: dict) -> Classifier:
    """Return the classifier of a file of weights, which includes the configuration: the folder is not read again."""
    classifier = build_random(metadata["architecture"], metadata["sizes"], metadata["vocabulary_digest"])
    torch_models.set_state(classifier.module, arrays)
    return classifier


def build_random(source: str, sizes: dict[str, Any], digest: str | None = None, seed: int = 0) -> Classifier:
    """Return a new classifier of these sizes, initialised from the seed by the rule of transformers."""
    config = dict(sizes["config"])
    library, model_type = folders.transformers(), config.pop("model_type")
    settings = library.AutoConfig.for_model(model_type, **config)
    with torch_models.set_seed(seed):
        model = _choose_class("text" if "pad" in sizes else "image").from_config(settings)
    return _build_classifier(source, model, sizes, digest)


def _choose_class(kind: str) -> Any:
    return getattr(folders.transformers(), f"AutoModel{folders.HEADS[kind]}")


def _build_classifier(source: str, model: Any, sizes: dict[str, Any], digest: str | None) -> Classifier:
    if "pad" in sizes:
        module = TextNetwork(model, sizes["pad"], sizes["order"], sizes.get("separator"))
    else:
        module = ImageNetwork(model, sizes["scale"], sizes["mean"], sizes["deviation"], sizes["order"])
    return Classifier("torch", source, module.eval(), len(sizes["order"]), sizes, digest, outputs="logits")


def _read_text_sizes(source: str, model: Any, card: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a network of token ids. Raises ShapelineError if the documents do not fit it."""
    known, length, most = model.get_input_embeddings().num_embeddings, card["input_shape"][0], limit_positions(model)
    if len(card["vocabulary"]) > known:
        raise ShapelineError(
            f"models: {source} knows {known} tokens and the tokenizer of '{card['name']}' has "
            f"{len(card['vocabulary'])}; name the folder of the model's own tokenizer"
        )
    if most is not None and length > most:
        raise ShapelineError(
            f"models: {source} takes {most} tokens and the documents of '{card['name']}' have {length}; set the "
            f"dataset's length: {most}"
        )
    pairs = {"separator": card["separator_id"]} if "separator_id" in card else {}
    return {"pad": card["absent_id"], "vocabulary": len(card["vocabulary"]), **pairs}


def _read_image_sizes(source: str, card: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a network of images. Raises ShapelineError if the images have other sides or channels."""
    if problem := folders.unfit_pictures(source, card["input_shape"]):
        raise ShapelineError(f"models: {problem}")
    return folders.normalisation(source)


def _read(source: str, kind: str) -> Any:
    """Return the model of a folder in float32. Raises ShapelineError, also if its file lacks weights."""
    try:
        model, report = _choose_class(kind).from_pretrained(
            expand(source),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except LOADING_ERRORS as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ShapelineError(
            f"models: {source} cannot be read by transformers ({reason}); save it again with save_pretrained"
        ) from error
    if report["missing_keys"]:
        raise ShapelineError(
            f"models: the weights of {source} lack {len(report['missing_keys'])} that the model has, first "
            f"'{min(report['missing_keys'])}', which would be random; save it again with model.save_pretrained"
        )
    return model.eval()


def _match_classes(source: str, model: Any, classes: list[str]) -> list[int]:
    """Return the output number of each class of the dataset: by name, or in order if the model has no names."""
    labels = [str(model.config.id2label[number]) for number in sorted(model.config.id2label)]
    if len(labels) == len(classes) and all(DEFAULT_LABEL.fullmatch(label) for label in labels):
        return list(range(len(classes)))
    for of_model, of_dataset in (
        (labels, classes),
        ([label.casefold() for label in labels], [name.casefold() for name in classes]),
    ):
        if sorted(of_model) == sorted(of_dataset) and len(set(of_model)) == len(of_model):
            return [of_model.index(name) for name in of_dataset]
    spaced = {name.strip().casefold() for name in classes} == {label.casefold() for label in labels}
    remedy = "set the dataset's trim: true" if spaced else "rename those of the file, or id2label in config.json"
    raise ShapelineError(
        f"models: {source} has the classes {', '.join(labels)} and the dataset has {', '.join(classes)}; they must "
        f"be the same: {remedy}"
    )


class ImageNetwork(nn.Module):
    """A network from images (n, channels, height, width) in [0, 1] to logits (n, classes).

    The model's inputs are (scale · images - mean) / deviation by channel, as from its image processor on pixels 0 to
    255. order: the returned outputs. kept (n, k): patches by number in reading order; the others are removed from the
    sequence after the position embedding. patch: their side, None if the model cannot remove patches.
    """

    def __init__(self, model: nn.Module, scale: float, mean: list[float], deviation: list[float], order: list[int]):
        super().__init__()
        self.model, self.scale, self.order = model, scale, order
        self.patch = model.config.patch_size if model.config.model_type in folders.LEAVING_OUT else None
        for name, numbers in (("mean", mean), ("deviation", deviation)):  # no weights: they are stored as sizes
            self.register_buffer(name, torch.tensor(numbers).view(-1, 1, 1), persistent=False)

    def forward(self, images: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
        pixels = (self.scale * images - self.mean) / self.deviation
        if kept is None:
            return self.model(pixel_values=pixels).logits[:, self.order]
        embeddings = self.model.base_model.embeddings

        def select_patches(_: nn.Module, given: Any, tokens: torch.Tensor) -> torch.Tensor:
            special = tokens.shape[1] - embeddings.patch_embeddings.num_patches
            of_patches = tokens[:, special:].gather(1, kept[..., None].expand(-1, -1, tokens.shape[2]))
            return torch.cat([tokens[:, :special], of_patches], dim=1)

        hook = embeddings.register_forward_hook(select_patches)
        try:
            return self.model(pixel_values=pixels).logits[:, self.order]
        finally:
            hook.remove()
