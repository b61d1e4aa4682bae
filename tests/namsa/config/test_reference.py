import json
from typing import Annotated, Literal

from paths import ROOT
from pydantic import BaseModel, Field

from namsa.cli.commands.schema import key_tables


class Round(BaseModel):
    """A round aperture."""

    kind: Literal["round"] = "round"
    radius_mrad: float = Field(gt=0, le=200, description="radius | half of the diameter")


class Square(BaseModel):
    """A square aperture."""

    kind: Literal["square"] = "square"
    sides_mrad: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (1, 2)


class Lens(BaseModel):
    """A lens.

    Attributes:
        aperture: Left out here.
    """

    aperture: Round | Square | None = None
    other: Round
    names: dict[str, bool] = Field({}, description="what is on")
    seed: int = 0


def test_sections_have_a_table_each_with_values_defaults_and_meaning() -> None:
    assert key_tables(Lens.model_json_schema()) == (
        """A lens.

| key | value | default | meaning |
|---|---|---|---|
| `aperture` | section [aperture (round)](#aperture-round) or section [aperture (square)](#aperture-square) or null """
        """| `null` |  |
| `other` | section [aperture (round)](#aperture-round) |  |  |
| `names` | names, each with true or false |  | what is on |
| `seed` | integer | `0` |  |

## aperture (round)

A round aperture.

| key | value | default | meaning |
|---|---|---|---|
| `kind` | `round` | `"round"` |  |
| `radius_mrad` | number, > 0, ≤ 200 |  | radius \\| half of the diameter |

## aperture (square)

A square aperture.

| key | value | default | meaning |
|---|---|---|---|
| `kind` | `square` | `"square"` |  |
| `sides_mrad` | list of 2: each integer, ≥ 1 | `[1, 2]` |  |
"""
    )


def test_every_key_of_an_experiment_says_what_it_is() -> None:
    rows = [
        line for line in key_tables(json.loads((ROOT / "configs/schema.json").read_text())).splitlines() if "`" in line
    ]
    silent = [row for row in rows if row.endswith("|  |") and "section [" not in row and "| `kind` |" not in row]
    assert len(rows) > 300
    assert not silent
