"""Log-probabilities of answers in batches, or with key-value caches of shared prefixes, a trie of tokens.

The last token of a prompt and its answer are never shared, so that every leaf has the answer's logits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from shapeline.generation.language_models import LanguageModel
from shapeline.memory import halve

MAX_PASS_TOKENS = {"cpu": 4096, "cuda": 1 << 15}  # larger passes are not faster
MAX_PASS_LOGITS = 1 << 27  # 512 MB in float32
PASS_TOKENS = 32  # fixed cost of a pass, in tokens
MIN_GAIN = 1.15  # smallest ratio of tokens at which reuse is used, since caches must be copied
MAX_CACHE_BYTES = 1 << 31  # caches of all rows that share a trie
TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-6}  # nats between both evaluations; else LOW_PRECISION_TOLERANCE
LOW_PRECISION_TOLERANCE = 0.1


@dataclass(frozen=True, eq=False)
class Row:
    """A prompt and its answer, both as ids; removed: tokens of the prompt that are not attended to, (n,) bool."""

    ids: Sequence[int]
    answer: Sequence[int]
    prefix: Sequence[int] = ()
    removed: np.ndarray | None = None

    @property
    def length(self) -> int:
        """Tokens of the pass; the answer's last token is predicted and not read."""
        return len(self.ids) + len(self.answer) - 1


def score_in_batches(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray]:
    """Return the log-probability (T,) of each answer's tokens after its prompt, in float32."""
    result: list[np.ndarray | None] = [None] * len(rows)
    one_pass = _run_seq2seq_pass if language_model.seq2seq else _run_causal_pass

    def run(most: int) -> None:
        waiting = [index for index in range(len(rows)) if result[index] is None]
        for batch in cut_batches(language_model, rows, waiting, most):
            for index, values in zip(batch, one_pass(language_model, [rows[index] for index in batch]), strict=True):
                result[index] = values

    with language_model.evaluating():
        halve(language_model, max(len(rows), 1), run, "prompt")
    return result


def cut_batches(
    language_model: LanguageModel, rows: Sequence[Row], indices: Sequence[int], most: int | None = None
) -> Iterator[list[int]]:
    """Yield indices of the rows of each pass, the longest first; without padding where the model has no positions."""
    order = sorted(indices, key=lambda index: -rows[index].length)
    batch: list[int] = []
    for index in order:
        if batch and (
            len(batch) >= limit_rows(language_model, rows[batch[0]], most)
            or (
                "position_ids" not in language_model.inputs
                and not language_model.seq2seq
                and rows[index].length != rows[batch[0]].length
            )
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def limit_rows(language_model: LanguageModel, longest: Row, most: int | None) -> int:
    """Return the number of rows of a pass, given the longest row."""
    tokens = MAX_PASS_TOKENS.get(language_model.device.type, MAX_PASS_TOKENS["cuda"]) // longest.length
    logits = MAX_PASS_LOGITS // (len(longest.answer) * language_model.vocabulary)
    return max(1, min(tokens, logits, most or tokens))


def select_answer_scores(logits: torch.Tensor, rows: Sequence[Row]) -> list[np.ndarray]:
    """Return the log-probabilities of the answers, whose logits are the last positions of each row."""
    width = logits.shape[1]
    targets = torch.zeros(logits.shape[:2], dtype=torch.long)
    for number, row in enumerate(rows):
        targets[number, width - len(row.answer) :] = torch.tensor(list(row.answer))
    scores = torch.log_softmax(logits.float(), dim=-1).gather(2, targets.to(logits.device)[..., None])[..., 0]
    scores = scores.cpu().numpy()
    return [scores[number, width - len(row.answer) :] for number, row in enumerate(rows)]


def _run_causal_pass(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray]:
    width, keep = max(row.length for row in rows), max(len(row.answer) for row in rows)
    ids, attended = np.zeros((2, len(rows), width), np.int64)
    for number, row in enumerate(rows):
        start = width - row.length
        ids[number, start:] = [*row.ids, *row.answer[:-1]]
        attended[number, start:] = 1
        if row.removed is not None:
            attended[number, start : start + len(row.ids)] = ~row.removed
    padding = width - np.array([row.length for row in rows])
    positions = np.maximum(np.arange(width) - padding[:, None], 0)
    arguments = {"input_ids": ids, "attention_mask": attended, "position_ids": positions}
    return select_answer_scores(compute_last_logits(language_model, keep, **arguments), rows)


def compute_last_logits(language_model: LanguageModel, keep: int, **arguments) -> torch.Tensor:
    """Return the logits (rows, keep, vocabulary) of the last `keep` positions of one pass."""
    arrays = {name: value for name, value in arguments.items() if name in language_model.inputs}
    tensors = {
        name: torch.as_tensor(value, device=language_model.device) if isinstance(value, np.ndarray) else value
        for name, value in arrays.items()
    }
    tensors.setdefault("use_cache", False)
    if "logits_to_keep" in language_model.inputs:
        tensors["logits_to_keep"] = keep
    return language_model.model(**tensors).logits[:, -keep:]


def _run_seq2seq_pass(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray]:
    """Return answer scores: the prompt enters the encoder, the answer the decoder, both padded on the right."""
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
    arguments = {"input_ids": ids, "attention_mask": attended, "decoder_input_ids": decoder}
    tensors = {name: torch.as_tensor(array, device=language_model.device) for name, array in arguments.items()}
    logits = language_model.model(**tensors, use_cache=False).logits
    return [
        select_answer_scores(logits[number : number + 1, len(row.prefix) : len(row.prefix) + len(row.answer)], [row])[0]
        for number, row in enumerate(rows)
    ]


@dataclass(eq=False)
class Node:
    """A node of a trie: tokens start to end of a row; row: of a leaf; cache: (layers, 2, heads, end, size)."""

    tokens: Sequence[int]
    end: int
    parent: "Node | None"
    row: int | None = None
    depth: int = 0
    children: int = 0
    cache: torch.Tensor | None = field(default=None, repr=False)

    @property
    def start(self) -> int:
        """Number of tokens of the prefix."""
        return self.parent.end if self.parent else 0

    @property
    def length(self) -> int:
        """Number of tokens of the node."""
        return self.end - self.start


def build_trie(rows: Sequence[Row]) -> list[Node]:
    """Return the nodes of the rows' compressed trie, parents before children."""
    sequences = [[*row.ids, *row.answer[:-1]] for row in rows]
    order = sorted(range(len(rows)), key=lambda index: sequences[index])
    root = Node((), 0, None)
    nodes, stack, before = [], [root], None
    for index in order:
        tokens = sequences[index]
        most = len(rows[index].ids) - 1
        shared = 0
        if before is not None:
            pairs = enumerate(zip(sequences[before], tokens, strict=False))
            common = next((number for number, (one, other) in pairs if one != other), most)
            shared = min(common, most, len(rows[before].ids) - 1)
        last = None
        while stack[-1].end > shared:
            last = stack.pop()
        if stack[-1].end < shared:
            branch = Node(last.tokens, shared, stack[-1])
            last.parent = branch
            nodes.append(branch)
            stack.append(branch)
        leaf = Node(tokens, len(tokens), stack[-1], index)
        nodes.append(leaf)
        stack.append(leaf)
        before = index
    return _finish(nodes, root)


def _finish(nodes: list[Node], root: Node) -> list[Node]:
    """Return the nodes without the root, ordered by depth, with depth and number of children set."""
    for node in nodes:
        node.parent = None if node.parent is root else node.parent
        if node.parent:
            node.parent.children += 1
    for node in nodes:
        above = node
        while above.parent:
            above, node.depth = above.parent, node.depth + 1
    return sorted(nodes, key=lambda node: node.depth)


def cut_passes(language_model: LanguageModel, nodes: Sequence[Node], rows: Sequence[Row]) -> Iterator[list[Node]]:
    """Yield the nodes of each pass: of one depth, leaves or branches, the longest first and at most twice any other."""
    most_tokens = MAX_PASS_TOKENS.get(language_model.device.type, MAX_PASS_TOKENS["cuda"])
    keys = sorted(nodes, key=lambda node: (node.depth, node.row is not None, -node.length))
    batch: list[Node] = []
    for node in keys:
        first = batch[0] if batch else node
        splits = (first.depth, first.row is None) != (node.depth, node.row is None) or 2 * node.length < first.length
        logits = len(rows[node.row].answer) * language_model.vocabulary if node.row is not None else 1
        if batch and (splits or len(batch) >= max(1, min(most_tokens // first.length, MAX_PASS_LOGITS // logits))):
            yield batch
            batch = []
        batch.append(node)
    if batch:
        yield batch


def count_tokens(groups: Iterator[list[int]], lengths) -> int:
    """Return the tokens of padded passes, with the fixed cost of each."""
    return sum(len(group) * max(map(lengths, group)) + PASS_TOKENS for group in groups)


def count_tokens_with_reuse(language_model: LanguageModel, rows: Sequence[Row]) -> int:
    """Return the tokens of the passes over the rows' tries."""
    step = limit_trie_rows(language_model, rows)
    order = sorted(range(len(rows)), key=lambda index: list(rows[index].ids))
    total = 0
    for first in range(0, len(rows), step):
        part = [rows[index] for index in order[first : first + step]]
        total += count_tokens(cut_passes(language_model, build_trie(part), part), lambda node: node.length)
    return total


def count_plain_tokens(language_model: LanguageModel, rows: Sequence[Row]) -> int:
    """Return the tokens of plain passes."""
    return count_tokens(cut_batches(language_model, rows, range(len(rows))), lambda index: rows[index].length)


def find_cache_size(language_model: LanguageModel) -> tuple[int, int, int] | None:
    """Return layers, heads and head size of a cache with equal layers that attend to every token; else None."""
    if language_model.cache_size == ():
        with language_model.evaluating():
            language_model.cache_size = _probe_cache(language_model)
    return language_model.cache_size


def _probe_cache(language_model: LanguageModel) -> tuple[int, int, int] | None:
    """Return the size of the cache after a pass of one token, or None."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    config = language_model.model.config.get_text_config()
    devices = set((getattr(language_model.model, "hf_device_map", None) or {"": 0}).values())
    is_supported = {"position_ids", "attention_mask"} <= language_model.inputs and language_model.cache_input
    if language_model.seq2seq or not is_supported or getattr(config, "sliding_window", None) or len(devices) > 1:
        return None
    zero, cache = np.zeros((1, 1), np.int64), DynamicCache()
    arguments = {"input_ids": zero, "attention_mask": zero + 1, "position_ids": zero}
    try:
        compute_last_logits(language_model, 1, **arguments, **{language_model.cache_input: cache}, use_cache=True)
        sizes = {tuple(part.shape) for layer in cache.layers for part in (layer.keys, layer.values)}
        if len(sizes) != 1 or any(type(layer) is not DynamicLayer for layer in cache.layers):
            return None
        [(_, heads, length, size)] = sizes
    except (TypeError, AttributeError, IndexError, ValueError, RuntimeError):  # an unsupported kind of cache
        return None
    return (len(cache.layers), heads, size) if length == 1 else None


def limit_trie_rows(language_model: LanguageModel, rows: Sequence[Row]) -> int:
    """Return the number of rows that may share a trie, so that their caches fit into memory."""
    layers, heads, size = find_cache_size(language_model)
    token = 2 * layers * heads * size * language_model.model.get_input_embeddings().weight.element_size()
    return int(np.clip(MAX_CACHE_BYTES // (token * max(row.length for row in rows)), 1, len(rows)))


def saves_tokens(language_model: LanguageModel, rows: Sequence[Row]) -> bool:
    """Return whether reuse saves enough tokens, by counting them."""
    if len(rows) < 3 or any(row.removed is not None for row in rows) or find_cache_size(language_model) is None:
        return False
    return count_plain_tokens(language_model, rows) > MIN_GAIN * count_tokens_with_reuse(language_model, rows)


def score_with_reuse(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray] | None:
    """Return scores as `score_in_batches`, with caches of shared prefixes; None where the cache cannot be shared."""
    if find_cache_size(language_model) is None:
        return None
    result: list[np.ndarray | None] = [None] * len(rows)
    order = sorted(range(len(rows)), key=lambda index: list(rows[index].ids))

    def run(most: int) -> None:
        step = min(most, limit_trie_rows(language_model, rows))
        waiting = [index for index in order if result[index] is None]
        for first in range(0, len(waiting), step):
            part = waiting[first : first + step]
            for index, values in zip(
                part, _evaluate_trie(language_model, [rows[index] for index in part]), strict=True
            ):
                result[index] = values

    try:
        with language_model.evaluating():
            halve(language_model, len(rows), run, "prompt")
    except (TypeError, AttributeError, IndexError, ValueError, RuntimeError):  # an unsupported kind of cache
        return None
    shortest = min(range(len(rows)), key=lambda index: rows[index].length)
    plain = score_in_batches(language_model, [rows[shortest]])[0]
    close = TOLERANCES.get(language_model.model.get_input_embeddings().weight.dtype, LOW_PRECISION_TOLERANCE)
    return result if np.allclose(result[shortest], plain, rtol=0, atol=close) else None


def _evaluate_trie(language_model: LanguageModel, rows: Sequence[Row]) -> list[np.ndarray]:
    result: list[np.ndarray | None] = [None] * len(rows)
    for nodes in cut_passes(language_model, build_trie(rows), rows):
        logits = _evaluate(language_model, nodes, rows)
        if nodes[0].row is not None:
            leaf_rows = [rows[node.row] for node in nodes]
            for node, values in zip(nodes, select_answer_scores(logits, leaf_rows), strict=True):
                result[node.row] = values
    return result


def _evaluate(language_model: LanguageModel, nodes: Sequence[Node], rows: Sequence[Row]) -> torch.Tensor:
    """Return the logits of one pass of nodes after their prefixes, and store the branches' caches in the nodes."""
    width, past = max(node.length for node in nodes), max(node.start for node in nodes)
    ids, positions = np.zeros((2, len(nodes), width), np.int64)
    attended = np.zeros((len(nodes), past + width), np.int64)
    for number, node in enumerate(nodes):
        ids[number, width - node.length :] = node.tokens[node.start : node.end]
        positions[number] = np.maximum(np.arange(width) - (width - node.length), 0) + node.start
        attended[number, past - node.start : past] = 1
        attended[number, past + width - node.length :] = 1
    cache = _gather_caches(language_model, nodes, past)
    keep = max((len(rows[node.row].answer) for node in nodes if node.row is not None), default=1)
    logits = compute_last_logits(
        language_model,
        keep,
        **{"input_ids": ids, "attention_mask": attended, "position_ids": positions, language_model.cache_input: cache},
        use_cache=True,
    )
    if nodes[0].row is None:
        new = torch.stack([torch.stack((layer.keys[:, :, past:], layer.values[:, :, past:])) for layer in cache.layers])
        for number, node in enumerate(nodes):
            part = new[:, :, number, :, width - node.length :]
            node.cache = part.clone() if node.parent is None else torch.cat([node.parent.cache, part], dim=-2)
    for node in nodes:
        if node.parent:
            node.parent.children -= 1
            if not node.parent.children:
                node.parent.cache = None
    return logits


def _gather_caches(language_model: LanguageModel, nodes: Sequence[Node], past: int):
    """Return the caches of the nodes' prefixes as a cache of transformers, padded on the left."""
    from transformers import DynamicCache

    if not past:
        return DynamicCache()
    layers, heads, size = find_cache_size(language_model)
    weight = next(node.parent.cache for node in nodes if node.parent)
    joined = weight.new_zeros((layers, 2, len(nodes), heads, past, size))
    for number, node in enumerate(nodes):
        if node.parent:
            joined[:, :, number, :, past - node.start :] = node.parent.cache
    return DynamicCache([(layer[0], layer[1]) for layer in joined])
