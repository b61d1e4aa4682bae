"""Cases that settings are searched on: specimens and conditions that are in no table of `reality_cases.py`."""

from pathlib import Path

from reality_cases import Case, Condition, write_cases

NOISY = Condition(vibration=0.06, source=0.6, dose=2e4, defocus=-20)
DEVELOPMENT = (Case("dev-inp", "InP", 65), Case("dev-inp-noisy", "InP", 65, NOISY), Case("dev-mgo", "MgO", 40))


def write_development(folder: Path) -> None:
    """Simulates those of `DEVELOPMENT` whose files do not exist yet."""
    write_cases(DEVELOPMENT, folder, lambda name: print(f"simulated {name}", flush=True))
