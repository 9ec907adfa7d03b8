"""Snakemake's locks of a folder in which more than one works.

A Snakemake that ends removes the locks of all (9.27, `_delete_locks`): after `snakemake doctor` beside a run, a second
run of the same files would start. Here it removes its own; `snakemake --unlock` still removes all.
"""

from pathlib import Path

from snakemake.persistence.file import FilePersistence

_REMOVE_ALL = FilePersistence._delete_locks


def spare_others() -> None:
    """From now on this Snakemake removes the locks that it wrote, and no other's."""
    FilePersistence._delete_locks = _remove_own
    FilePersistence.cleanup_locks = _REMOVE_ALL


def _remove_own(persistence: FilePersistence) -> None:
    while persistence._lockfile:
        Path(persistence._lockfile.popitem()[1]).unlink(missing_ok=True)
