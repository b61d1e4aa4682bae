"""Settings of the documentation: `scripts/uv run --group docs sphinx-build -W docs docs/_build`."""

from importlib import metadata

project = "namsa"
copyright = "the namsa developers"
release = metadata.version("namsa")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
# Links to files of the repository that are no pages, such as configurations and model cards.
suppress_warnings = ["myst.xref_missing"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"namsa {release}"
