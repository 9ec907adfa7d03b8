"""Language models of transformers: loading or wrapping, their limits, and their greedy answers."""

import contextlib
import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from shapeline.datasets import folders
from shapeline.errors import ShapelineError, first_line, is_out_of_memory, name_type
from shapeline.generation.prompts import WHERE
from shapeline.models.torch_models import evaluation_mode, unwrap_parallel
from shapeline.models.transformer_models import limit_positions


@dataclass(eq=False)
class LanguageModel:
    """A causal or sequence-to-sequence model; most_rows: per pass; inputs: of its forward pass; cache_size: or ()."""

    model: Any
    inputs: frozenset[str]
    most_rows: int | None = None
    cache_size: tuple[int, ...] | None = ()

    @classmethod
    def of(cls, model: Any) -> "LanguageModel":
        """Return a wrapped model. Raises ShapelineError where it generates no text."""
        model = unwrap_parallel(model)
        if not isinstance(model, nn.Module) or not hasattr(model, "generate") or not hasattr(model, "config"):
            raise ShapelineError(
                f"{WHERE}: the model is {name_type(model)}; give a causal or sequence-to-sequence model of "
                "transformers, its folder, or a function prompts -> log-probabilities."
            )
        # a compiled or adapted model passes all arguments on: those of the first model inside count
        inputs = (inspect.signature(module.forward).parameters for module in model.modules())
        return cls(model, frozenset(next((names for names in inputs if "input_ids" in names), ())))

    @property
    def architecture(self) -> str:
        """The model's name in messages."""
        return type(self.model).__name__

    @property
    def seq2seq(self) -> bool:
        """Whether the model has an encoder for the prompt and a decoder for the answer."""
        return bool(getattr(self.model.config, "is_encoder_decoder", False))

    @property
    def cache_input(self) -> str | None:
        """The name of the forward pass's cache argument; transformers 5.24 renamed it."""
        return next((name for name in ("cache", "past_key_values") if name in self.inputs), None)

    @property
    def device(self) -> torch.device:
        """The device of the inputs, also for a model on several devices."""
        return self.model.get_input_embeddings().weight.device

    @property
    def vocabulary(self) -> int:
        """Number of tokens with a logit."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def embeddings(self) -> int:
        """Number of tokens with an embedding."""
        return len(self.model.get_input_embeddings().weight)

    @property
    def window(self) -> int | None:
        """Maximum number of positions; None where unbounded."""
        return limit_positions(self.model)

    def evaluating(self) -> contextlib.AbstractContextManager[None]:
        """Return a context without gradients and dropout, which restores the model's mode."""
        return evaluation_mode(self.model)

    def check_causal(self) -> None:
        """Raise ShapelineError for a model that fails on tokens alone, or whose tokens attend to later ones, and so to
        the answer."""
        ids = torch.tensor([[0, 0], [0, 1]], device=self.device)
        more = {"decoder_input_ids": ids} if self.seq2seq else {}
        try:
            with self.evaluating():
                logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), **more).logits[:, 0]
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise ShapelineError(
                f"{WHERE}: {self.architecture} fails on tokens alone ({first_line(error)}); give a model of texts, or "
                "a function prompts -> log-probabilities."
            ) from error
        if self.seq2seq:
            return
        first, second = logits
        rounding = max(1e-5, 4 * torch.finfo(logits.dtype).eps) * float(logits.abs().max())
        if ((first - second).abs() > rounding).any():
            raise ShapelineError(
                f"{WHERE}: {self.architecture} is not causal, its tokens attend to later ones; load it as a decoder "
                "(is_decoder=True)."
            )

    def check_mask(self) -> None:
        """Raise ShapelineError for a model that ignores its attention mask, so that masked parts would score 0."""
        if self.seq2seq:
            return
        ids = torch.tensor([[0, 1, 2, 3]] * 2, device=self.device)
        attended = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 1]], device=self.device)
        with self.evaluating():
            first, second = self.model(input_ids=ids, attention_mask=attended).logits[:, -1]
        if torch.equal(first, second):
            raise ShapelineError(
                f"{WHERE}: {self.architecture} attends to masked tokens as to others; choose removal='delete'."
            )

    def generate(self, prompts: Sequence[Sequence[int]], most: int, tokenizer: Any) -> list[list[int]]:
        """Return the greedy continuation of each prompt, at most `most` tokens. Raises ShapelineError."""
        settings = self.model.generation_config
        end = getattr(settings, "eos_token_id", None)
        end = end[0] if isinstance(end, list) else end
        more = {"tokenizer": tokenizer} if getattr(settings, "stop_strings", None) else {}
        answers = []
        with self.evaluating():
            for ids in prompts:
                tokens = torch.tensor([list(ids)], device=self.device)
                try:
                    generated = self.model.generate(
                        input_ids=tokens,
                        attention_mask=torch.ones_like(tokens),
                        max_new_tokens=most,
                        do_sample=False,
                        num_beams=1,
                        return_dict_in_generate=False,
                        temperature=None,
                        top_p=None,
                        top_k=None,
                        pad_token_id=end or 0,
                        **more,
                    )[0].tolist()
                except (ValueError, TypeError) as error:
                    raise ShapelineError(
                        f"{WHERE}: {self.architecture} generates no answer ({first_line(error)}); correct its "
                        "generation_config, or give target='an answer'."
                    ) from error
                answers.append(generated[1:] if self.seq2seq else generated[len(ids) :])
        return answers


def load(source: str | os.PathLike) -> tuple[LanguageModel, Any]:
    """Return the model and tokenizer of a folder, without downloads and without running the folder's code."""
    path = os.fspath(source)
    if not os.path.isdir(path):
        raise ShapelineError(
            f"{WHERE}: there is no folder '{path}'; give the folder of a model (nothing is downloaded)."
        )
    folders.check_generator(path)
    library = folders.transformers()
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = library.AutoConfig.from_pretrained(path, **local)
        kind = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
        model = getattr(library, kind).from_pretrained(path, use_safetensors=True, **local)
        tokenizer = library.AutoTokenizer.from_pretrained(path, **local)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        raise ShapelineError(
            f"{WHERE}: {path} cannot be read by transformers ({first_line(error)}); save it again with save_pretrained."
        ) from error
    return LanguageModel.of(model), tokenizer
