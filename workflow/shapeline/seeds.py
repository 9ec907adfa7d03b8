"""Seeds derived from names, so that a draw never depends on the order of jobs or of draws."""

import hashlib


def seed_of(*names: object) -> int:
    """A 63-bit seed from the names (sha256; Python's own hash() changes between processes)."""
    digest = hashlib.sha256("\x1f".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
