"""Values and mutations that files and people come up with: of the wrong kind, too large, nested,
damaged.
"""

import random
from copy import deepcopy
from typing import Any

Command = tuple[str, list[str]]  # a program and its arguments

NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63),
    10**30,
    1e-30,
    1e18,
    1e30,
    1e300,
    -1e300,
    0.5,
    float("inf"),
    float("nan"),
)
WORDS = (
    "", " ", "..", "../../evil", "/etc/passwd", "a" * 5000, "1e400", "-0", "null", "\u0000", "Å",
    "auto", "all",
    "[1, 2]",
)  # fmt: skip


def odd(rng: random.Random, depth: int = 0) -> Any:
    """Returns a value of any JSON type."""
    kind = rng.randrange(9)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(WORDS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return int("9" * rng.choice((20, 400, 4000)))
    if depth > 2:
        return []
    if kind == 7:
        return [odd(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice(WORDS)[:20]: odd(rng, depth + 1) for _ in range(rng.randrange(4))}


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the paths of all values in a tree of mappings and lists."""
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


def changed_tree(tree: Any, rng: random.Random, extremes: bool = False) -> Any:
    """Returns a copy of `tree` with one to three values replaced, removed, added or repeated.

    extremes: Numbers are replaced by extreme numbers only, so that types stay valid.
    """
    tree = deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 3))):
        candidates = [path for path in places(tree) if path]
        if extremes:
            candidates = [path for path in candidates if isinstance(at(tree, path), int | float)]
        if not candidates:
            break
        path = rng.choice(candidates)
        parent = at(tree, path[:-1])
        action = 0 if extremes else rng.randrange(6)
        if action == 1:
            del parent[path[-1]]
        elif action == 2 and isinstance(parent, dict):
            parent[rng.choice((*WORDS, "energy", "seed", "limit"))[:40]] = odd(rng)
        elif action == 3 and isinstance(parent, list):
            parent.extend(deepcopy(parent[-1:]) * rng.choice((1, 3, 1000)))
        else:
            parent[path[-1]] = _extreme(at(tree, path), rng) if extremes else odd(rng)
    return tree


def _extreme(value: float, rng: random.Random) -> float:
    """Returns an extreme number, or `value` many times larger or smaller, which its range may still
    contain.
    """
    if rng.random() < 0.4:
        return rng.choice(NUMBERS)
    scaled = value * 10 ** rng.uniform(-4, 6) * rng.choice((1, 1, 1, -1))
    return round(scaled) if isinstance(value, int) else scaled


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Returns `data` with bytes flipped, cut out, repeated or inserted."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 2, 5))):
        if not data:
            break
        at = rng.randrange(len(data))
        length = rng.choice((1, 4, 64))
        action = rng.randrange(5)
        if action == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            del data[at : at + length]
        elif action == 2:
            data[at:at] = data[at : at + length]
        elif action == 3:
            data[at:at] = rng.choice(
                (b"\xff", b"\x00", b"[" * 300, b"1e999", b"{", b"'", b"\n", b": ", b"- ", b"&a *a")
            )
        else:
            del data[at:]
    return bytes(data)


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree
