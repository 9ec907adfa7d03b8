"""The coalitions that a method evaluates of each instance: those of one design, or a sample of the instance's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shapeline.attribution.batches import Batch, SampledMasks, shared
from shapeline.attribution.sequential import Rounds
from shapeline.designs.design import Design
from shapeline.designs.draws import count_at_once, draws
from shapeline.games.features import Features
from shapeline.methods.settings import MethodSettings, Size
from shapeline.seeds import seed_of

CHUNK = 32  # instances between two progress lines
DATA_CHUNK = 256  # of a method that reads all the data once a chunk
CHUNK_VALUES = 1_000_000  # values of a chunk: 8 MB, and seconds between two progress lines
CHUNK_BYTES = 1 << 28  # of its inputs: some methods hold them all on the device


@dataclass(frozen=True)
class Sampling:
    """What the instances at some places (m,) are asked; in which order they are taken (n,), so that those of one design
    follow each other; and how many at a time."""

    ask: Callable[[np.ndarray], Batch | Rounds]
    order: np.ndarray
    step: int


def sample(
    method: MethodSettings,
    features: Features,
    designs: Sequence[tuple[float | None, Design | Size]],
    inputs: np.ndarray,
    seed: int,
    named: np.ndarray,
    outputs: bool = False,
) -> Sampling:
    """Return the sampling of a method on instances.

    designs: of each budget the multiple of d, and its design, or its size where each instance has one of its own; none
    of a method that makes scores itself. inputs, named: of the instances, (n, *input shape), and what seeds their
    samples. outputs: the instances are outputs of one game, of one name, which are taken together.
    """
    masks = sum(design.evaluations for _, design in designs) + 2
    most = DATA_CHUNK if method.method.measure else CHUNK
    sizes = [CHUNK_BYTES // max(1, inputs[:1].nbytes)]
    if not method.samples_designs:
        every = shared([design for _, design in designs], features.d, method.read)
        step = min([most, CHUNK_VALUES // masks, *sizes])
        return Sampling(lambda places: every, np.arange(len(inputs)), max(1, step))
    d, largest = features.d, max(design.evaluations for _, design in designs)
    drawn = draws(seed, named.tolist(), d, largest, method.method.exchangeable)

    def ask(spends: Sequence[float | None]) -> Callable[[np.ndarray], Batch]:
        def make(number: int) -> list[Design]:
            own = number if drawn.orders is None else seed_of(seed, "pool", number)
            return [method.design(features, spend, own, keep=False) for spend in spends]

        stack = method.read_outputs if outputs else method.read_stack
        return SampledMasks(d, drawn, make, method.read, stack).select

    asks = ask([spend for spend, _ in designs])
    if until := method.until:
        spent = method.rounds(d)
        masks, rounds = spent[-1], [ask([count / d]) for count in spent]

        def asks(places: np.ndarray) -> Rounds:
            return Rounds(places, rounds, until, method.method.falls, method.method.rounds, outputs)

    # Masks of each instance, and designs for some of them; rounds and budgets hold theirs each.
    whole_pool = method.method.exchangeable and len(designs) == 1 and not until
    sizes += [most, CHUNK_VALUES // masks, CHUNK_BYTES // (masks * d), count_at_once(d, masks, whole_pool) or most]
    sizes = [len(inputs)] if outputs else sizes
    return Sampling(asks, np.argsort(drawn.numbers.astype(object), kind="stable"), max(1, min(sizes)))
