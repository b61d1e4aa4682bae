"""Commands that install what is missing: `scripts/uv` in a checkout, pip with an extra of the
package elsewhere.
"""

from pathlib import Path

CHECKOUT = (Path(__file__).parents[2] / "scripts" / "uv").is_file()
EXTRAS = {"tensorflow": "reconstruct", "keras": "reconstruct", "jax": "jax"}  # that bring a package
SYNC = "scripts/uv sync"
# pip builds a package apart from those that are installed, where Horovod finds no TensorFlow and
# goes without.
HOROVOD = (
    "pip install 'namsa[train]' && HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 pip install "
    "--no-build-isolation horovod==0.28.1 (Linux, Python 3.11 or 3.12, a C++ compiler and make)"
)


def as_installed(text: str) -> str:
    """Returns commands of a checkout as an installed package has them."""
    return text.replace("scripts/uv run ", "").replace("python -m train ", "namsa-train ")


def command(package: str) -> str:
    """Returns the command that installs a package."""
    if CHECKOUT:
        return SYNC
    if package == "horovod":
        return HOROVOD
    if package in EXTRAS:
        return f"pip install 'namsa[{EXTRAS[package]}]'"
    return f"pip install --force-reinstall {package}"
