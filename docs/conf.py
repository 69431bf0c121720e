"""Configuration of the documentation site: Sphinx with MyST and Furo. ``make docs`` builds it."""

from __future__ import annotations

import re
from importlib.metadata import version as installed
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "trtcache"
author = "The trtcache authors"
release = version = installed("trtcache")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_design",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"trtcache {release}"
html_static_path = ["_static"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#4a7500", "color-brand-content": "#4a7500"},
    "dark_css_variables": {"color-brand-primary": "#9bd13c", "color-brand-content": "#9bd13c"},
}
html_css_files = ["site.css"]
html_show_copyright = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a page of evidence may begin its sections at the third level

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_ivar = True

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_copy_empty_lines = False

_PAGES = (
    (re.compile(r"\]\(\.\./SECURITY\.md"), "](security.md"),
    (re.compile(r"\]\(\.\./CHANGELOG\.md"), "](changelog.md"),
    (re.compile(r"\]\(\.\./examples[^)]*"), "](examples.md"),
)
"""Links to files beside ``docs/``, which GitHub shows, and the pages of the site that have them."""


def _link_to_pages(app: Sphinx, name: str, source: list[str]) -> None:  # noqa: ARG001  # Sphinx's signature
    for link, page in _PAGES:
        source[0] = link.sub(page, source[0])


def setup(app: Sphinx) -> None:
    """Rewrite links when a page is read."""
    app.connect("source-read", _link_to_pages)
