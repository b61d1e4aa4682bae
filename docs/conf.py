"""Settings of the documentation: `scripts/uv run --group docs sphinx-build -W docs docs/_build`."""

from importlib import metadata
from pathlib import Path

from namsa.cli.commands.schema import key_tables
from train.experiment.experiment import Experiment

project = "namsa"
copyright = "the namsa developers"
release = metadata.version("namsa")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_keys.md", "jupyter_execute"]

# What docs/configuration.md includes.
Path(__file__).with_name("_keys.md").write_text(key_tables(Experiment.model_json_schema()), encoding="utf-8")

# Notebooks are stored without outputs and executed here. An error ends the build, as does a cell of more seconds.
nb_execution_mode = "force"
nb_execution_timeout = 1800
nb_execution_raise_on_error = True
nb_merge_streams = True
# Links to files of the repository that are no pages, such as configurations and model cards.
suppress_warnings = ["myst.xref_missing"]

default_role = "code"
python_maximum_signature_line_length = 90
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "model_config, key_hints"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"namsa {release}"


def _shorten_signature(app, what, name, obj, options, signature, return_annotation):
    """Writes NumPy's ArrayLike by its name: autodoc sees the union that it stands for."""
    union = "_SupportsArray[dtype[Any]] | _NestedSequence[_SupportsArray[dtype[Any]]] | bool | int | float | complex | "
    union += "str | bytes | _NestedSequence[bool | int | float | complex | str | bytes]"
    return signature and signature.replace(union, "ArrayLike"), return_annotation


def setup(app):
    app.connect("autodoc-process-signature", _shorten_signature)
