"""Settings of the documentation: `scripts/uv run --group docs sphinx-build -W docs docs/_build`."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # signatures.py

from signatures import shorten

project = "namsa"
copyright = "the namsa developers"
release = metadata.version("namsa")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# sphinx-gallery makes pages of `gallery` in `examples`.
exclude_patterns = ["_build", "jupyter_execute", "gallery", "examples/*.ipynb"]

# Notebooks are stored without outputs and executed here. An error ends the build, as does a cell of
# more seconds.
nb_execution_mode = "force"
nb_execution_timeout = 1800
nb_execution_raise_on_error = True
nb_merge_streams = True
# The gallery's scripts are run here. An error ends the build.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "abort_on_example_error": True,
    "min_reported_time": 10,
    "show_memory": False,
    "download_all_examples": False,
    "remove_config_comments": True,
}
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
    """Writes NumPy's types by their names: autodoc sees the unions that they stand for."""
    if signature:
        signature = shorten(signature)
    if return_annotation:
        return_annotation = shorten(return_annotation)
    return signature, return_annotation


def setup(app):
    app.connect("autodoc-process-signature", _shorten_signature)
