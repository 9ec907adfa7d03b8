"""A prompt and a language model as a game: the answer that is explained, checked against the model's limits."""

from typing import Any

import numpy as np

from shapeline.generation import game
from shapeline.generation.encoding import Answer, Encoder
from shapeline.generation.game import ModelSource, PromptGame, Removal
from shapeline.generation.prompts import Prompt


def open_encoder(model: Any, tokenizer: Any, chat: bool, built: Prompt) -> Encoder:
    """Return the encoder of a prompt, whose texts the tokenizer and the model can read. Raises ShapelineError."""
    encoder = Encoder(tokenizer, chat, model.seq2seq)
    model.check_causal()
    encoder.check_texts(built.user_texts() if built.roles else built.parts)
    encoder.check_vocabulary(built.render(np.ones(built.d, bool)), model.embeddings)
    return encoder


def answer_of(model: Any, encoder: Encoder, built: Prompt, target: str | None, removal: Removal, most: int) -> Answer:
    """Return a given answer, or the model's own greedy one of at most so many tokens. Raises ShapelineError."""
    everything = built.render(np.ones(built.d, bool))
    if target is not None:
        return encoder.encode_answer(target, everything)
    game.check_window(encoder, built, (), model.window, removal)
    ids = encoder.encode([everything])[0]
    room = most if model.window is None or model.seq2seq else model.window - len(ids)
    return encoder.answer_of(model.generate([ids], max(1, min(most, room)))[0])


def build_game(
    model: Any, encoder: Encoder, built: Prompt, answers: list[Answer], removal: Removal, reuse: bool | None = None
) -> PromptGame:
    """Return the game over the parts of a prompt; answers: the one that is explained, and perhaps a contrasted one."""
    game.check_window(encoder, built, answers, model.window, removal)
    signs = np.concatenate([np.full(len(one.ids), sign) for one, sign in zip(answers, (1.0, -1.0), strict=False)])
    tokens = tuple(token for one in answers for token in one.tokens)
    return PromptGame(built, tokens, signs, ModelSource(model, encoder, built, answers, removal, reuse))
