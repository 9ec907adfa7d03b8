"""shap, captum and lime on a case: the same model, instances, reference and number of evaluations.

A peer is given the value of coalitions as a function (shapeline.third_party.black_box), which fills features with
torch.where and runs the plain module, ROWS of them a call: faster than one call with all. Its own arguments are those
that its documentation gives for speed.
"""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.cases import BUDGET, Case
from benchmarks.turns import Run, timed

ROWS = 256  # of a call of the model, and perturbations that captum is allowed to ask for at a time


@dataclass(frozen=True)
class Peer:
    """ours: the method that it is compared with; goal: how many times its rate ours is to be; None for no goal."""

    package: str
    ours: str
    explain: Callable  # of a Game, the case and the evaluations
    goal: float | None = None
    text: bool | None = None  # for texts alone, for images alone; for all


def _shap_kernel(game, case: Case, budget: int):
    import shap

    explainer = shap.KernelExplainer(game, np.zeros((1, game.d)))
    explainer.shap_values(np.ones((1, game.d)), nsamples=budget - 2, l1_reg=False, silent=True)


def _shap_sampling(game, case: Case, budget: int):
    import shap

    explainer = shap.SamplingExplainer(game, np.zeros((1, game.d)))
    explainer.shap_values(np.ones((1, game.d)), nsamples=budget // 2, silent=True)  # of two evaluations each


def _shap_permutation(game, case: Case, budget: int):
    import shap

    masker = shap.maskers.Independent(np.zeros((1, game.d)), max_samples=1)
    pairs = max(1, budget // (2 * game.d))
    explainer = shap.PermutationExplainer(game, masker, seed=0)
    explainer(np.ones((1, game.d)), max_evals=pairs * (2 * game.d + 1), silent=True)


def _shap_partition(game, case: Case, budget: int):
    import shap

    from shapeline.third_party.shap_methods import BATCH_NODES, build_linkage

    def masker(mask: np.ndarray, x: np.ndarray) -> np.ndarray:
        return (mask * x)[None]

    masker.shape, masker.clustering, masker.immutable_outputs = (1, game.d), build_linkage(case.features.shape), True
    explainer = shap.PartitionExplainer(game, masker)
    explainer(np.ones((1, game.d)), max_evals=budget, batch_size=BATCH_NODES, silent=True)


def _captum(name: str, per_call: int) -> Callable:
    def explain(game, case: Case, budget: int):
        import captum.attr
        import torch

        count = budget if name == "KernelShap" else max(1, budget // game.d)  # ShapleyValueSampling: permutations
        explainer = getattr(captum.attr, name)(lambda masks: torch.from_numpy(game(masks.numpy())))
        ones, zeros = torch.ones(1, game.d), torch.zeros(1, game.d)
        explainer.attribute(ones, baselines=zeros, n_samples=count, perturbations_per_eval=per_call)

    return explain


def _lime_text(game, case: Case, budget: int):
    from lime import lime_text

    explainer = lime_text.LimeTextExplainer(bow=False, mask_string="ABSENT", feature_selection="none", random_state=0)

    def of_texts(texts: list[str]) -> np.ndarray:
        return game(np.array([text.split() for text in texts]) != "ABSENT")[:, None]

    words = " ".join(f"word{place}" for place in range(game.d))
    explainer.explain_instance(words, of_texts, labels=(0,), num_features=game.d, num_samples=budget)


def _lime_image(game, case: Case, budget: int):
    from lime import lime_image

    lime_image.tqdm = iter  # its progress bar, which has no switch
    segments = case.features.cells[0]
    _, corners = np.unique(segments, return_index=True)
    explainer = lime_image.LimeImageExplainer(feature_selection="none", random_state=0)

    def of_images(images: np.ndarray) -> np.ndarray:
        return game(images[..., 0].reshape(len(images), -1)[:, corners])[:, None]

    explainer.explain_instance(
        *(np.ones((*segments.shape, 3), np.uint8), of_images, (0,)),
        **{"top_labels": None, "hide_color": 0, "num_features": game.d, "num_samples": budget},
        **{"batch_size": ROWS, "segmentation_fn": lambda _: segments},
    )


PEERS = {
    "shap KernelExplainer": Peer("shap", "kernel_shap", _shap_kernel, goal=20),
    "shap SamplingExplainer": Peer("shap", "sample_shapley", _shap_sampling, goal=50),
    "shap PermutationExplainer": Peer("shap", "sample_shapley", _shap_permutation, goal=50),
    "shap PartitionExplainer": Peer("shap", "partition", _shap_partition, goal=10),
    f"captum KernelShap, {ROWS} a call": Peer("captum", "kernel_shap", _captum("KernelShap", ROWS), goal=40),
    "captum KernelShap, 1 a call (default)": Peer("captum", "kernel_shap", _captum("KernelShap", 1)),
    f"captum ShapleyValueSampling, {ROWS} a call": Peer(
        "captum", "sample_shapley", _captum("ShapleyValueSampling", ROWS)
    ),
    "captum ShapleyValueSampling, 1 a call (default)": Peer(
        "captum", "sample_shapley", _captum("ShapleyValueSampling", 1)
    ),
    "lime LimeTextExplainer": Peer("lime", "lime", _lime_text, text=True),
    "lime LimeImageExplainer": Peer("lime", "lime", _lime_image, text=False),
}


def version(peer: Peer) -> str | None:
    """Return the version of the peer's package; None if it is missing."""
    return importlib.metadata.version(peer.package) if importlib.util.find_spec(peer.package) else None


def choose_peers(case: Case) -> dict[str, Peer]:
    """Return the peers for the case's kind of data."""
    kind = True if case.words else False if len(case.shape) == 3 else None
    return {name: peer for name, peer in PEERS.items() if peer.text is None or peer.text == kind}


def run_of(peer: Peer, case: Case) -> Run:
    """Return the run that explains the case's first instance and returns its number of evaluations."""
    from shapeline.third_party.black_box import InstanceGame, seed_numpy

    evaluate, budget = _evaluator(case), BUDGET * case.features.d

    def explain() -> int:
        game = InstanceGame(evaluate, case.features)
        with seed_numpy(0):
            peer.explain(game, case, budget)
        return game.evaluations

    return timed(explain)


def _evaluator(case: Case) -> Callable[[np.ndarray], np.ndarray]:
    """Log-probabilities of the target on coalitions (K, d) of the first instance, (K,), by the plain module."""
    import torch

    from shapeline.models.torch_models import evaluation_mode

    d, module = case.features.d, case.model.module.eval()
    cells = torch.from_numpy(np.where(case.features.cells < 0, d, case.features.cells).ravel().astype(np.int64))
    own = len(cells) == d and torch.equal(cells, torch.arange(d))
    x, absent = torch.from_numpy(case.inputs[:1]), torch.from_numpy(case.reference.rows)
    target = int(case.targets[0])

    def evaluate(masks: np.ndarray) -> np.ndarray:
        values = []
        with evaluation_mode(module):
            for start in range(0, len(masks), ROWS):
                present = torch.from_numpy(masks[start : start + ROWS])
                if not own:
                    kept = torch.cat([present, torch.ones(len(present), 1, dtype=torch.bool)], dim=1)
                    present = kept.index_select(1, cells)
                rows = torch.where(present.view(-1, *case.shape), x, absent)
                values.append(torch.log_softmax(module(rows), dim=1)[:, target])
        return torch.cat(values).double().numpy()

    return evaluate
