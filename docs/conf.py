"""How the documentation site is built: sphinx-build -W docs build/site."""

from nsm.version import __version__

project = "nsm"
author = "the nsm developers"
copyright = "the nsm developers, MIT licence"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"

html_theme = "furo"
html_title = "nsm"
exclude_patterns = ["images/**"]
