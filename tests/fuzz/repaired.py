"""The program that repairs a dataset and then verifies it: after a repair no damage is left."""

from namsa.cli.parser import main as namsa


def main(words: list[str]) -> int:
    """Runs `namsa repair` on a dataset, then `namsa verify`, which must find nothing that is corrupt."""
    code = namsa(["repair", *words])
    if code == 0:
        assert namsa(["verify", *words]) == 0, "damage is left after the repair"
    return code
