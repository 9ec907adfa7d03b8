"""Log-probabilities of answers by batched passes: rows sorted by length, left padding, the answer's logits only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from shapeline.generation.language_models import LanguageModel
from shapeline.memory import halved

TOKENS = {"cpu": 4096, "cuda": 1 << 15}  # of a pass: more would not be faster
LOGITS = 1 << 27  # of a pass, in float32: 512 MB


@dataclass(frozen=True, eq=False)
class Row:
    """A prompt and its answer, both as ids; removed: tokens of the prompt that are not attended to, (n,) bool."""

    ids: Sequence[int]
    answer: Sequence[int]
    prefix: Sequence[int] = ()
    removed: np.ndarray | None = None

    @property
    def length(self) -> int:
        """Tokens of the pass: the last one of the answer is predicted, never read."""
        return len(self.ids) + len(self.answer) - 1


def score(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray]:
    """Return the log-probability (T,) of each answer's tokens after its prompt, in float32."""
    found: list[np.ndarray | None] = [None] * len(rows)
    one_pass = _seq2seq_pass if language_model.seq2seq else _causal_pass

    def run(most: int) -> None:
        waiting = [place for place in range(len(rows)) if found[place] is None]
        for batch in batches(language_model, rows, waiting, most):
            for place, values in zip(batch, one_pass(language_model, [rows[place] for place in batch]), strict=True):
                found[place] = values

    with language_model.evaluating():
        halved(language_model, max(len(rows), 1), run, "prompt")
    return found


def batches(
    language_model: LanguageModel, rows: Sequence[Row], places: Sequence[int], most: int | None = None
) -> Iterator[list[int]]:
    """Places of the rows of each pass, the longest first; without padding where the model takes no positions."""
    order = sorted(places, key=lambda place: -rows[place].length)
    batch: list[int] = []
    for place in order:
        if batch and (
            len(batch) >= most_rows(language_model, rows[batch[0]], most)
            or (
                not language_model.has_positions
                and not language_model.seq2seq
                and rows[place].length != rows[batch[0]].length
            )
        ):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def most_rows(language_model: LanguageModel, longest: Row, most: int | None) -> int:
    """Rows of a pass whose longest is given."""
    tokens = TOKENS.get(language_model.device.type, TOKENS["cuda"]) // longest.length
    logits = LOGITS // (len(longest.answer) * language_model.vocabulary)
    return max(1, min(tokens, logits, most or tokens))


def answer_scores(logits: torch.Tensor, rows: Sequence[Row]) -> list[np.ndarray]:
    """Log-probabilities of the answers whose logits are the last places of each row."""
    width = logits.shape[1]
    targets = torch.zeros(logits.shape[:2], dtype=torch.long)
    for number, row in enumerate(rows):
        targets[number, width - len(row.answer) :] = torch.tensor(list(row.answer))
    scores = torch.log_softmax(logits.float(), dim=-1).gather(2, targets.to(logits.device)[..., None])[..., 0]
    scores = scores.cpu().numpy()
    return [scores[number, width - len(row.answer) :] for number, row in enumerate(rows)]


def _causal_pass(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray]:
    width, keep = max(row.length for row in rows), max(len(row.answer) for row in rows)
    ids, attended = np.zeros((2, len(rows), width), np.int64)
    for number, row in enumerate(rows):
        start = width - row.length
        ids[number, start:] = [*row.ids, *row.answer[:-1]]
        attended[number, start:] = 1
        if row.removed is not None:
            attended[number, start : start + len(row.ids)] = ~row.removed
    lacking = width - np.array([row.length for row in rows])
    positions = np.maximum(np.arange(width) - lacking[:, None], 0)
    given = {"input_ids": ids, "attention_mask": attended, "position_ids": positions}
    return answer_scores(last_logits(language_model, keep, **given), rows)


def last_logits(language_model: LanguageModel, keep: int, **given) -> torch.Tensor:
    """Logits (rows, keep, vocabulary) of the last `keep` places of one pass."""
    arrays = {name: one for name, one in given.items() if name in language_model.inputs}
    tensors = {
        name: torch.as_tensor(one, device=language_model.device) if isinstance(one, np.ndarray) else one
        for name, one in arrays.items()
    }
    tensors.setdefault("use_cache", False)
    if "logits_to_keep" in language_model.inputs:
        tensors["logits_to_keep"] = keep
    return language_model.model(**tensors).logits[:, -keep:]


def _seq2seq_pass(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray]:
    """The prompt through the encoder, the answer through the decoder, both padded on the right."""
    width = max(len(row.ids) for row in rows)
    longest = max(len(row.prefix) + len(row.answer) for row in rows)
    ids, attended = np.zeros((2, len(rows), width), np.int64)
    decoder = np.zeros((len(rows), longest), np.int64)
    start = language_model.model.generation_config.decoder_start_token_id
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = row.ids
        attended[number, : len(row.ids)] = 1 if row.removed is None else ~row.removed
        before = [start, *row.prefix, *row.answer[:-1]]
        decoder[number, : len(before)] = before
    given = {"input_ids": ids, "attention_mask": attended, "decoder_input_ids": decoder}
    tensors = {name: torch.as_tensor(one, device=language_model.device) for name, one in given.items()}
    logits = language_model.model(**tensors, use_cache=False).logits
    return [
        answer_scores(logits[number : number + 1, len(row.prefix) : len(row.prefix) + len(row.answer)], [row])[0]
        for number, row in enumerate(rows)
    ]
