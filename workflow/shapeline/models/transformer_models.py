"""Classifiers of transformers, of texts or of images: read from a folder, and as networks that give logits."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from shapeline.datasets import folders
from shapeline.datasets.sources import expand
from shapeline.datasets.text import DELETED
from shapeline.errors import ShapelineError, first_line, name_type
from shapeline.models import torch_models
from shapeline.models.classifier import Classifier

# Errors of from_pretrained for files that are damaged, of another version, or need a missing package.
LOADING_ERRORS = (OSError, ValueError, RuntimeError, ImportError, KeyError, TypeError, AttributeError, SafetensorError)
DEFAULT_LABEL = re.compile(r"LABEL_\d+")


def for_dataset(source: str, card: dict[str, Any]) -> Classifier:
    """Return the classifier in a folder of transformers for the data of a card."""
    kind = card["kind"]
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
    if problem := kind == "image" and folders.find_image_problem(source, card["input_shape"]):
        raise ShapelineError(f"models: {problem}")
    sizes = {
        "config": json.loads(model.config.to_json_string(use_diff=False)) | {"dtype": "float32", "_name_or_path": ""},
        "order": _match_classes(source, model, list(card["classes"])),
        **(_read_text_sizes(source, model, card) if kind == "text" else folders.normalisation(source)),
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
        raise ShapelineError(
            f"models: {source} cannot be read by transformers ({first_line(error)}); save it again with save_pretrained"
        ) from error
    if report["missing_keys"]:
        raise ShapelineError(
            f"models: the weights of {source} lack {len(report['missing_keys'])} that the model has, first "
            f"'{min(report['missing_keys'])}', which would be random; save it again with model.save_pretrained"
        )
    return model.eval()


def _match_classes(source: str, model: Any, classes: list[str]) -> list[int]:
    """Return the output number of each class of the dataset: by name, or in order if the model has no names."""
    labels = torch_models.list_labels(model)
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


ROWS = 1024  # that are sorted by length together
TOKENS = {"cpu": 4096, "cuda": 1 << 16}  # of a pass: more would not be faster


class TextNetwork(nn.Module):
    """forward(ids) gives logits (n, classes) of ids (n, length); `pad` is not attended to, DELETED left out.

    Rows are sorted by length, each pass as wide as its longest. order: of outputs; separator: of pairs; `classes_`:
    names.
    """

    rows_a_call = ROWS
    names_ids = True  # classes_ are the names of the numbers 0, 1, ..., by which transformers tells classes apart

    def __init__(self, model: nn.Module, pad: int, order: list[int] | None = None, separator: int | None = None):
        super().__init__()
        self.model, self.pad, self.order, self.separator = model, pad, order, separator
        self.__name__ = type(model).__name__
        self.classes_ = torch_models.list_labels(model)
        if getattr(getattr(model, "config", None), "model_type", None) == "xlnet":
            raise ShapelineError(
                f"models: {name_type(model)} reads the end of its padding too; give a model that does not"
            )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        ids = self._move_up(ids.long())
        places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        lengths = ((ids != self.pad) * places).amax(1).clamp(min=1)
        order = lengths.argsort(descending=True)
        longest = lengths[order].tolist()
        parts, first = [], 0
        while first < len(ids):
            last = first + max(1, TOKENS.get(ids.device.type, TOKENS["cuda"]) // longest[first])
            some = ids[order[first:last], : longest[first]]
            parts.append(self._logits(input_ids=some, **self._attention_inputs(some)))
            first = last
        logits = torch.cat(parts)
        return torch.empty_like(logits).index_copy_(0, order, logits)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (n, length, e) of the tokens themselves, without those of their places."""
        if (ids == DELETED).any():
            raise ShapelineError(
                "gradient methods: under reference 'delete' an absent word has no embedding, so there is no path to "
                "it; use reference: mask or pad"
            )
        return self.model.get_input_embeddings()(ids.long())

    def from_embedding(self, embedded: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return logits from the result of `embed`; ids: of the input, whose padding is masked."""
        ids = self._trim(ids)
        try:
            return self._logits(inputs_embeds=embedded[:, : ids.shape[1]], **self._attention_inputs(ids))
        except NotImplementedError as error:  # of a model that generates, such as BART
            raise ShapelineError(
                f"gradient methods: '{self.__name__}' takes no embeddings; choose a method of coalitions"
            ) from error

    def attentions(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Return the attention weights of each layer, (n, heads, t, t); t: of the longest row, without padding."""
        ids = self._trim(ids.long())
        with self.plainly():
            output = self.model(input_ids=ids, **self._attention_inputs(ids), output_attentions=True)
        layers = getattr(output, "attentions", None) or [None]
        whole = all(layer is not None and layer.shape[-2:] == (ids.shape[1],) * 2 for layer in layers)
        if not whole or getattr(self.model.config, "classifier_pooling", "cls") != "cls":
            raise ShapelineError(
                f"attention_rollout: '{self.__name__}' gives no attention of all tokens to the one that it reads; "
                "choose another method"
            )
        return list(layers)

    def plainly(self) -> contextlib.AbstractContextManager:
        """Use the model's `eager_attention` inside the block."""
        return eager_attention(self.model)

    def _move_up(self, ids: torch.Tensor) -> torch.Tensor:
        absent = ids == DELETED
        if not absent.any():
            return ids
        return ids.masked_fill(absent, self.pad).gather(1, absent.int().argsort(dim=1, stable=True))

    def _trim(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        return ids[:, : max(1, int(((ids != self.pad) * places).max()))]

    def _attention_inputs(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the model's inputs for tokens: the attention mask and, for pairs, the token types."""
        attended = ids != self.pad
        attended[:, 0] |= ~attended.any(1)  # of nothing at all there is no softmax
        beside = {"attention_mask": attended.long()}
        if self.separator is not None and getattr(self.model.config, "type_vocab_size", 0) > 1:
            separators = (ids == self.separator).long()
            beside["token_type_ids"] = (separators.cumsum(1) > separators).long()
        return beside

    def _logits(self, **given: torch.Tensor) -> torch.Tensor:
        output: Any = self.model(**given)
        logits = getattr(output, "logits", output)
        return logits if self.order is None else logits[:, self.order]


@contextlib.contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Use attention as two products and a softmax inside the block, because faster ones return no weights."""
    with torch_models.ATTENTION:
        usual = getattr(model.config, "_attn_implementation", None)
        try:
            model.set_attn_implementation("eager")
            yield
        finally:
            model.set_attn_implementation(usual)


def find_task(model: Any) -> str:
    """Return the task of a model of transformers: "classification", "multilabel" or "regression"."""
    config = getattr(model, "config", None)
    if getattr(config, "num_labels", 2) == 1:
        return "regression"
    several = getattr(config, "problem_type", None) == "multi_label_classification"
    return "multilabel" if several else "classification"


def limit_positions(model: nn.Module) -> int | None:
    """Return how many tokens a model of transformers has positions for; None if their number is not bounded."""
    limit = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    bounds = [limit] if isinstance(limit, int) and limit > 0 else []
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            # Some count the places from behind the padding's own.
            bounds.append(part.num_embeddings - (0 if part.padding_idx is None else part.padding_idx + 1))
    return min(bounds, default=None)
