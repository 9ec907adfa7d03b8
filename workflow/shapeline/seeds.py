"""Seeds and digests of names and settings, independent of the order of jobs, samples and keys."""

import hashlib
import json


def seed_of(*names: object) -> int:
    """Return a 63-bit seed from the names (sha256; Python's own hash() changes between processes)."""
    digest = hashlib.sha256("\x1f".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def digest(settings: dict) -> str:
    """Return sixteen hexadecimal digits that identify settings, independent of the order of keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
