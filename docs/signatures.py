"""Signatures of the API page, with NumPy's unions of types by the names that people know."""

import re

NAME = r"~?[\w.]*"  # in front of a type: its module, and what autodoc marks short names with
ANY = rf"{NAME}Any"
ANY_DTYPE = rf"{NAME}dtype\[{ANY}\]"
SUPPORTS = rf"{NAME}_SupportsArray\[{ANY_DTYPE}\]"
SCALARS = r"bool \| int \| float \| complex \| str \| bytes"
# In the order in which they are replaced. `str` is missing where the argument may be a path, too.
SHORT_NAMES = (
    (
        rf"{SUPPORTS} \| {NAME}_NestedSequence\[{SUPPORTS}\] \| bool \| int \| float \| complex \| "
        rf"(?:str \| )?bytes \| {NAME}_NestedSequence\[{SCALARS}\]",
        "ArrayLike",
    ),
    (
        rf"{ANY_DTYPE} \| None \| type\[{ANY}\].*?_DTypeDict \| tuple\[{ANY}, {ANY}\]",
        "DTypeLike | None",
    ),
    (rf"{NAME}ndarray\[{ANY}, {ANY_DTYPE}\]", "NDArray"),
    (rf"{NAME}ndarray\[{ANY}, {NAME}dtype\[~?([\w.]+)\]\]", r"NDArray[\1]"),
    (rf"{NAME}ndarray\[{ANY}, {NAME}dtype\[~?[\w.]*(\w+)\[[^\]]*\]\]\]", r"NDArray[\1]"),
    (r"<function [^>]*<lambda>[^>]*>+", "..."),
)


def shorten(signature: str) -> str:
    """Returns a signature, or the type that a function returns, with short names of types."""
    for pattern, name in SHORT_NAMES:
        signature = re.sub(pattern, name, signature)
    return signature
