"""A sequence classifier of transformers as a network of token ids alone, which gives logits."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from shapeline.datasets.text import DELETED
from shapeline.errors import ShapelineError

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
        config = getattr(model, "config", None)
        if getattr(config, "model_type", None) == "xlnet":
            raise ShapelineError(
                f"models: a {self.__name__} reads the end of its padding too; give a model that does not"
            )
        if find_task(model) != "regression" and getattr(config, "id2label", None):
            self.classes_ = [str(config.id2label[number]) for number in sorted(config.id2label)]

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
        """Remove the positions that are padding in every row."""
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
    usual = getattr(model.config, "_attn_implementation", None)
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(usual)


def is_of_transformers(model: Any) -> bool:
    return isinstance(model, nn.Module) and hasattr(model, "get_input_embeddings") and hasattr(model, "config")


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
