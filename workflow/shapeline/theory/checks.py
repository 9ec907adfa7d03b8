"""Every statement of the theory page, checked."""

from dataclasses import dataclass

from shapeline.theory.estimators import KernelProof, Sweep, SymmetricWeight, charnes, kernel_proof, lemma_1, sweep
from shapeline.theory.identities import (
    BanzhafIdentity,
    Efficiency,
    Identities,
    MyersonGap,
    Search,
    banzhaf_identity,
    check_identities,
    efficiency,
    myerson_gaps,
    search,
)
from shapeline.theory.visited_nodes import Hierarchy, hierarchy


@dataclass(frozen=True)
class Checks:
    """All checks of the theory report, made by `check_all`."""

    seed: int
    kernel: KernelProof
    charnes: list[SymmetricWeight]
    lemma_1: float
    sweep: Sweep
    myerson: list[MyersonGap]
    efficiency: list[Efficiency]
    banzhaf: list[BanzhafIdentity]
    hierarchy: Hierarchy
    identities: Identities
    uniqueness: Search


def check_all(seed: int = 0) -> Checks:
    """Every check at the size of the report; a few seconds. Every random sample comes from `seed`."""
    return Checks(
        seed,
        kernel_proof(seed=seed),
        charnes(seed=seed),
        lemma_1(),
        sweep(seed=seed),
        myerson_gaps(seed=seed),
        efficiency(seed=seed),
        banzhaf_identity(seed=seed),
        hierarchy(seed=seed),
        check_identities(seed=seed),
        search(seed=seed),
    )
