"""How the documentation site is built: sphinx-build -W docs build/site."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from nsm.version import __version__

sys.path.insert(0, str(Path(__file__).parent))
import command_pages

project = "nsm"
author = "the nsm developers"
copyright = "the nsm developers, MIT licence"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"

smartquotes = False  # --help is two hyphens

html_theme = "furo"
html_title = "nsm"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = False
exclude_patterns = ["images/**"]


class Commands(SphinxDirective):
    """The reference of commands, from the parser itself."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(command_pages.page(), allow_section_headings=True)


def setup(app: Any) -> None:
    app.add_directive("nsm-commands", Commands)
