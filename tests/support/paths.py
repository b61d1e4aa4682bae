"""Where the tests find what they need of the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
BENCH = ROOT / "scripts" / "bench"
DATA = ROOT / "tests" / "data"
SUPPORT = ROOT / "tests" / "support"
REFERENCE = ROOT / "tests" / "reference"
