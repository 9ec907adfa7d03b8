"""The engine's backend for torch models, and for functions, whose rows are filled by torch too.

Absent features are filled on the model's device, in one reused buffer, tile after tile of instances x coalitions; each
tile goes to the model in its form (plain module, channels-last, frozen graph).
"""

import copy
import functools
import logging
import math
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from shapeline.engine import (
    CALIBRATION_SECONDS,
    PREDICTION,
    TOLERANCE,
    Form,
    FormRefused,
    as_array,
    check_finite,
    masked_rows,
    shared_reference,
)
from shapeline.errors import MethodFailure, ShapelineError, nearest
from shapeline.features import Features
from shapeline.memory import halved
from shapeline.models.classifier import Classifier, function_log_probs, function_predictions
from shapeline.models.torch_models import checked_logits, device_of, evaluation_mode, normalised
from shapeline.references import Reference

log = logging.getLogger(__name__)

# Bytes of the buffer of filled rows, and of a chunk of expanded masks. More would not be faster, and a large image
# times the usual batch would be killed by the system before torch could refuse it.
BUFFER_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}
MASK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
LARGEST_BATCH = {"cpu": 1 << 14, "cuda": 1 << 16}
KEPT_OUTPUTS = 1 << 18  # model outputs kept until they are scored together
MOMENT, FEW_ROWS = 0.1, 64  # seconds of a call that the calibration can afford; rows that are rarely the best
NEARLY = 1.02  # of what is this near to the fastest, the smaller batch is better: its buffers stay in the cache
_LARGEST = max(LARGEST_BATCH.values())


def values(
    model: Classifier,
    inputs: np.ndarray,
    reference: Reference,
    masks: np.ndarray,
    features: Features,
    value: str,
    targets: np.ndarray | None,
    form: Form,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """As engine.values, which has checked everything: values (n, K) float64."""
    own, reference = reference.own, shared_reference(reference, inputs)
    result = np.empty((len(inputs), masks.shape[-2]))
    n, K, M = *result.shape, len(reference.rows)
    with _evaluating(model):
        runner = _runner(model, form, inputs, reference)
        full = None
        if targets is None or value == "expected_log_probability":
            full = runner.log_probs(inputs)
            model.n_classes = full.shape[1]
        targets = full.argmax(1) if targets is None else torch.from_numpy(targets).to(runner.device)
        score = functools.partial(_score, value=value, framework=model.framework, task=model.task)
        full = full.exp() if value == "expected_log_probability" else None
        absent = runner.flat(reference.rows).to(runner.device)
        cells = runner.cells(features)
        a, b = _tile(n, K, max(1, runner.limit // M))
        buffer = torch.empty((a * b * M, runner.size), dtype=absent.dtype, device=runner.device)
        chunk = b * max(1, MASK_BYTES[runner.device.type] // (4 * runner.size * b))
        evaluations = 0
        for first in range(0, K, chunk):
            last = min(first + chunk, K)
            shared = present = None  # frees those of the chunk before, which are as large
            # Masks that all instances share are expanded to input cells once, not once an instance.
            shared = runner.expand(masks[None, first:last], cells) if masks.ndim == 2 else None
            for start in range(0, n, a):
                stop = min(start + a, n)
                if own is not None:
                    rows = as_array(own(inputs[start:stop]), inputs.dtype).reshape(-1, *inputs.shape[1:])
                    absent = runner.flat(rows).to(runner.device).view(stop - start, 1, M, -1)
                fill = filler(absent, runner.flat(inputs[start:stop]).to(runner.device)[:, None, None])
                of_block = targets[start:stop], None if full is None else full[start:stop]
                scored, outputs = [], []
                for k in range(first, last, b):
                    end = min(k + b, last)
                    if shared is None:
                        present = runner.expand(masks[start:stop, k:end], cells)
                    else:
                        present = shared[:, k - first : end - first]
                    pairs = (stop - start, end - k, M)
                    filled = buffer[: math.prod(pairs)]
                    fill(present[:, :, None], filled.view(*pairs, -1))
                    outputs.append(runner.outputs(filled).view(*pairs, -1))
                    if end == last or len(outputs) * outputs[0].numel() > KEPT_OUTPUTS:
                        scored.append(score(torch.cat(outputs, dim=1), *of_block))
                        outputs = []
                result[start:stop, first:last] = torch.cat(scored, dim=1).cpu().numpy()
                check_finite(model, result, start, stop, first, last, value)
                evaluations += (stop - start) * (last - first)
                if progress:
                    progress(stop if last == K else 0, evaluations)
    return result


def filler(absent: torch.Tensor, rows: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A function that writes `rows` where present and `absent` where not, broadcast to its second argument; all
    float32 or all int32.

    Its first argument is int32, all bits set where present, else none: choosing by bits is exact for any number, NaN
    included, and vectorised. torch.where on a boolean mask is not, on the CPU, and takes 15 times as long.
    """
    absent = absent.view(torch.int32)
    difference = rows.view(torch.int32) ^ absent

    def fill(present: torch.Tensor, out: torch.Tensor) -> None:
        torch.bitwise_and(present, difference, out=out.view(torch.int32)).bitwise_xor_(absent)

    return fill


def _score(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    full: torch.Tensor | None,
    value: str,
    framework: str,
    task: str = "classification",
) -> torch.Tensor:
    """Model outputs (a, b, M, classes) of a tile to values (a, b); `full` (a, classes): those on the input."""
    outputs = outputs.double()
    if task == "multilabel":
        # The sigmoid of a label's logit is the softmax of the two logits 0 and it.
        label = outputs.gather(3, targets.view(-1, 1, 1, 1).expand(*outputs.shape[:3], 1))
        outputs, targets = torch.cat([torch.zeros_like(label), label], dim=3), torch.ones_like(targets)
    index = targets.view(-1, 1, 1, 1).expand(*outputs.shape[:3], 1)
    if value in ("logit", PREDICTION):
        return outputs.gather(3, index).mean(dim=(2, 3))
    of_target = value in ("log_probability", "probability")
    if of_target and outputs.shape[3] == 2 and framework != "function":
        # The softmax of two is the sigmoid of their difference, which takes a fifth of the time.
        sign = torch.where(targets == 0, 1.0, -1.0).to(outputs).view(-1, 1, 1)
        log_probs = torch.nn.functional.logsigmoid((outputs[..., 0] - outputs[..., 1]) * sign).unsqueeze(3)
    else:
        log_probs = outputs if framework == "function" else torch.log_softmax(outputs, dim=3)
        log_probs = log_probs.gather(3, index) if of_target else log_probs
    average = log_probs[:, :, 0]
    if log_probs.shape[2] > 1:
        average = log_probs.logsumexp(dim=2) - math.log(log_probs.shape[2])
    if value == "log_probability":
        return average[..., 0]
    if value == "probability":
        return average[..., 0].exp()
    if value == "log_odds":
        others = average.scatter(2, index[:, :, 0], -torch.inf).logsumexp(dim=2)
        return average.gather(2, index[:, :, 0])[..., 0] - others
    full = full[:, None]
    return torch.where(full > 0, full * average, 0.0).sum(dim=2)  # 0 log 0 is 0


@dataclass
class _Runner:
    """A model in its form, with what it takes to bring rows to it. `limit` is how many rows a call may hold."""

    model: Classifier
    forward: Callable[[torch.Tensor], torch.Tensor]
    shape: tuple[int, ...]
    device: torch.device
    limit: int
    channels_last: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def flat(self, array: np.ndarray) -> torch.Tensor:
        """(n, *input_shape) to (n, cells), in the order in which the form keeps an input's cells in memory."""
        rows = torch.from_numpy(array)
        if self.channels_last:
            rows = rows.permute(0, 2, 3, 1)
        return rows.reshape(len(rows), -1)

    def cells(self, features: Features) -> torch.Tensor | None:
        """Feature of each cell in memory order, d where it is never removed; None where cells are the features."""
        cells = self.flat(features.cells[None].astype(np.int64))[0]
        if features.d == len(cells) and torch.equal(cells, torch.arange(features.d)):
            return None
        return torch.where(cells < 0, features.d, cells).to(self.device)

    def expand(self, masks: np.ndarray, cells: torch.Tensor | None) -> torch.Tensor:
        """Masks (a, b, d) bool to the bits of cells, (a, b, cells) int32: 0 absent, -1 (all bits set) present."""
        present = torch.from_numpy(masks).to(self.device).to(torch.int32).neg_()
        if cells is not None:
            always = present.new_full((*masks.shape[:2], 1), -1)
            present = torch.cat([present, always], dim=2).view(-1, masks.shape[2] + 1)
            # As floats: torch selects integers one by one, floats (the same bits) seven times as fast.
            present = present.view(torch.float32).index_select(1, cells).view(torch.int32).view(*masks.shape[:2], -1)
        return present

    def inputs(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows (n, cells) in memory order as the model takes them, (n, *input_shape), without a copy."""
        if not self.channels_last:
            return rows.view(-1, *self.shape)
        channels, height, width = self.shape
        return rows.view(-1, height, width, channels).permute(0, 3, 1, 2)

    def outputs(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits (log-probabilities of a function) of rows (n, cells); halves the limit when memory runs out."""

        def run(limit: int) -> torch.Tensor:
            if len(rows) <= limit:
                return self.forward(self.inputs(rows))
            return torch.cat([self.forward(self.inputs(part)) for part in rows.split(limit)])

        outputs = halved(self.model, min(self.limit, len(rows)), run)
        self.limit = min(self.limit, self.model.most_rows or self.limit)
        return outputs

    def log_probs(self, inputs: np.ndarray) -> torch.Tensor:
        """Log-probabilities (n, classes) float64 of whole inputs; predictions (n, 1) of a regression."""
        parts = [
            self.outputs(self.flat(inputs[i : i + self.limit]).to(self.device)).double()
            for i in range(0, len(inputs), self.limit)
        ]
        outputs = torch.cat(parts)
        if self.model.task == "regression":
            return outputs.view(len(inputs), 1)
        return outputs if self.model.framework == "function" else normalised(outputs, self.model.task)

    def compared(self, inputs: np.ndarray) -> torch.Tensor:
        """What shows whether two forms are the same: log_probs and, of several labels, those of their absence too."""
        log_probs = self.log_probs(inputs)
        if self.model.task != "multilabel":
            return log_probs
        return torch.cat([log_probs, torch.log(-torch.expm1(log_probs)).clamp(min=-700)], dim=1)  # no -inf


def _runner(model: Classifier, form: Form, inputs: np.ndarray, reference: Reference) -> _Runner:
    device = torch.device(model.device)
    shape = inputs.shape[1:]
    limit = min(form.batch, LARGEST_BATCH[device.type], BUFFER_BYTES[device.type] // (4 * math.prod(shape)))
    limit = min(limit, model.most_rows or limit)
    forward = prepare(model, form, inputs, reference)
    return _Runner(model, forward, shape, device, max(1, limit), form.name == "channels_last")


def _tile(n: int, K: int, pairs: int) -> tuple[int, int]:
    """Instances and coalitions of a tile: as near to `pairs` of them together as even shares of K allow."""
    shares = (math.ceil(K / splits) for splits in range(math.ceil(K / pairs), math.ceil(K / pairs) + 4))
    tiles = [(min(n, pairs // b), b) for b in shares]
    return max(tiles, key=lambda tile: tile[0] * tile[1])


# --- forms --------------------------------------------------------------------------------------------------------


def prepare(
    model: Classifier, form: Form, inputs: np.ndarray, reference: Reference
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The model in a form: a function from rows (n, *input_shape) to logits (log-probabilities for a function).

    What a form needs (a copy, a trace) is kept as long as the module lives and made anew when its weights change.
    Raises ShapelineError for an unknown form, FormRefused when the model cannot take it.
    """
    forms = FORMS | ASKED
    if form.name not in forms:
        raise ShapelineError(f"engine: unknown form '{form.name}'.{nearest(form.name, forms)}")
    name = model.architecture
    if model.framework == "function":
        function = function_predictions if model.task == "regression" else function_log_probs
        return lambda rows: torch.from_numpy(function(model.module, rows.numpy(), name))
    module = model.module
    if form.name == "plain":
        return lambda rows: checked_logits(module(rows), len(rows), name, model.task)
    kept = _PREPARED.setdefault(module, {})
    key = (form.name, inputs.shape[1:])
    state = tuple(
        (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version)
        for tensor in (*module.parameters(), *module.buffers())
    )
    if key not in kept or kept[key][0] != state:
        rows = np.concatenate([inputs[:1], reference.rows[:1]])
        try:
            with evaluation_mode(module):
                kept[key] = state, forms[form.name](module, torch.from_numpy(rows).to(device_of(module)))
        except FormRefused as refusal:
            raise FormRefused(f"engine: '{name}' cannot take the form '{form.name}': {refusal}") from refusal
    return kept[key][1]


_PREPARED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _channels_last(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A copy of the module whose weights lie channels-last; for images only."""
    if rows.ndim != 4:
        raise FormRefused("the inputs are not images")
    try:
        with torch.inference_mode(False):
            return copy.deepcopy(module).to(memory_format=torch.channels_last)
    except (RuntimeError, TypeError) as error:
        raise FormRefused(f"the module cannot be copied: {_first_line(error)}") from error


def _frozen(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module traced on rows, with its weights folded in and its layers fused; the only place that uses torch.jit.

    Refused when the trace warns: a branch that depends on the data would be frozen as these rows took it.
    """
    with warnings.catch_warnings(record=True) as caught, torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("always")  # records, and so silences, that torch.jit is deprecated
        try:
            traced = torch.jit.trace(module, rows.clone(), check_trace=False)
            frozen = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
            raise FormRefused(f"tracing failed: {_first_line(error)}") from error
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning):
            raise FormRefused(f"the trace warns: {_first_line(warning.message)}")
    return frozen


def _bfloat16(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module in mixed precision: convolutions and products of matrices in bfloat16."""
    own, device = weakref.ref(module), rows.device.type  # weakly: the form is kept as long as the module lives

    def forward(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return own()(rows).float()

    return forward


def _compiled(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A copy of the module compiled for batches of any size; it takes a C++ compiler."""
    try:
        with torch.inference_mode(False):
            compiled = torch.compile(copy.deepcopy(module), dynamic=True)
        compiled(rows)
    except (RuntimeError, TypeError, OSError) as error:
        raise FormRefused(f"torch.compile failed: {_first_line(error)}") from error
    return compiled


def _compiled_bfloat16(module: torch.nn.Module, rows: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    with torch.autocast(rows.device.type, torch.bfloat16):
        compiled = _compiled(module, rows)

    def forward(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(rows.device.type, torch.bfloat16):
            return compiled(rows).float()

    return forward


def _first_line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# Beside plain, in the order in which they are tried.
FORMS = {"plain": None, "frozen": _frozen, "channels_last": _channels_last}
# Never tried unless an experiment asks for them: they are slow to make, or change numbers.
ASKED = {"bfloat16": _bfloat16, "compiled": _compiled, "compiled_bfloat16": _compiled_bfloat16}


def calibrate(model: Classifier, inputs: np.ndarray, reference: Reference) -> Form:
    """As engine.calibrate, for inputs and reference rows as the model takes them."""
    began = time.perf_counter()
    found: dict[tuple[str, int], float] = {}  # seconds a row
    steps: dict[tuple[str, int], Callable[[], float]] = {}
    differences: dict[str, float] = {}
    with _evaluating(model):
        plain = _runner(model, Form("plain", _LARGEST), inputs, reference)
        one = _step(plain, 1, inputs, reference)
        one()  # threads start
        single = _fastest(one, 1)
        rows = masked_rows(inputs, reference, count=int(np.clip(MOMENT / single, 4, 64)))
        expected = plain.compared(rows)
        # Large models start with small batches, so that no single call takes more than a moment.
        smallest = 1 << int(np.clip(math.log2(MOMENT / single), 0, math.log2(FEW_ROWS)))
        forms = FORMS if model.framework == "torch" else ("plain",)
        for place, name in enumerate(forms, 1):  # each has its share of the time
            try:
                runner = plain if name == "plain" else _runner(model, Form(name, _LARGEST), inputs, reference)
                differences[name] = 0.0 if name == "plain" else _difference(runner, rows, expected)
            except (FormRefused, RuntimeError, MethodFailure) as refusal:
                log.info("form %s left out: %s", name, _first_line(refusal))
                continue
            if not differences[name] <= TOLERANCE:
                log.info("form %s left out: log-probabilities differ by %.1e", name, differences[name])
                continue
            best, worse, batch = math.inf, 0, smallest
            # Two worse ones in a row end the search; below FEW_ROWS, on a busy machine, they may be an accident.
            while batch <= runner.limit and (worse < 2 or batch <= min(FEW_ROWS, MOMENT / best)):
                if best < math.inf and time.perf_counter() > began + CALIBRATION_SECONDS * place / len(forms):
                    break
                step = _step(runner, batch, inputs, reference)
                seconds = _fastest(step, batch)
                found[name, batch], steps[name, batch] = seconds, step
                worse = 0 if seconds < 0.98 * best else worse + 1
                best, batch = min(best, seconds), 2 * batch
        ordered = sorted(found, key=found.__getitem__)
        of_forms = {name: (name, batch) for name, batch in reversed(ordered)}  # the best of each: it comes last
        leaders = list({*ordered[:3], *of_forms.values()})
        for _ in range(5):  # the leaders again, in turns, so that a passing disturbance decides nothing
            for key in leaders:
                if time.perf_counter() < began + CALIBRATION_SECONDS:
                    found[key] = min(found[key], steps[key]())
    near = [key for key in leaders if found[key] <= NEARLY * min(found.values())]
    name, batch = min(near, key=lambda key: (key[1], found[key]))
    return Form(name, batch, 1 / found[name, batch], differences[name])


def difference(model: Classifier, inputs: np.ndarray, reference: Reference, form: Form) -> float:
    """Largest difference of log-probabilities between a form and the plain model on 64 masked rows, as _difference."""
    with _evaluating(model):
        rows = masked_rows(inputs, reference, count=64)
        expected = _runner(model, Form("plain", form.batch), inputs, reference).compared(rows)
        return _difference(_runner(model, form, inputs, reference), rows, expected)


def _difference(runner: "_Runner", rows: np.ndarray, expected: torch.Tensor) -> float:
    """Largest difference of log-probabilities to the expected ones, all rows at once and about half of them."""
    half = len(rows) // 2 + 1
    actual = torch.cat([runner.compared(rows), runner.compared(rows[:half])])
    expected = torch.cat([expected, expected[:half]])
    # float32 logits of size 30 differ by 1e-5 from rounding alone, hence relative below -1.
    return float(((actual - expected).abs() / expected.abs().clamp(min=1)).max())


def _step(runner: "_Runner", batch: int, inputs: np.ndarray, reference: Reference) -> Callable[[], float]:
    """One tile of the engine on made-up masks, as a function that returns its seconds a row (inf: too large)."""
    rows = runner.flat(inputs[:1]).to(runner.device)
    fill = filler(runner.flat(reference.rows[:1]).to(runner.device), rows)
    kept = np.random.default_rng(0).random((1, batch, runner.size)) < 0.5
    present = runner.expand(kept, None)[0]
    buffer = torch.empty((batch, runner.size), dtype=rows.dtype, device=runner.device)
    target = torch.zeros(1, dtype=torch.int64, device=runner.device)

    def run() -> float:
        start = time.perf_counter()
        fill(present, buffer)
        outputs = runner.outputs(buffer)
        told = runner.model.framework, runner.model.task
        _score(outputs.view(1, batch, 1, -1), target, None, "log_probability", *told)
        if runner.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / batch if runner.limit >= batch else math.inf

    return run


def _fastest(step: Callable[[], float], batch: int) -> float:
    """Seconds a row: the best of some repetitions, because others may use the machine at the same time.

    The first ones are a warm-up: kernels are generated for each new shape.
    """
    started, best = time.perf_counter(), math.inf
    for _ in range(20):
        best = min(best, step())
        if time.perf_counter() - started > max(0.03, 2.5 * best * batch):
            break
    return best


def _evaluating(model: Classifier):
    return torch.inference_mode() if model.framework == "function" else evaluation_mode(model.module)
