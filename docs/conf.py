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
smartquotes = False  # they turn --json of the commands' help into a dash

maximum_signature_line_length = 88  # longer ones have a line for each parameter

html_theme = "furo"
pygments_dark_style = "monokai"  # the default underlines names of modules and classes
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

autodoc_type_aliases = {"Json": "Json"}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True  # os.environ as such: its value would publish the environment of the build
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_ivar = True

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_copy_empty_lines = False

_PAGES = (
    (re.compile(r"\]\(\.\./SECURITY\.md"), "](security.md"),
    (re.compile(r"\]\(\.\./CHANGELOG\.md"), "](changelog.md"),
    (re.compile(r"\]\(\.\./examples[^)]*"), "](examples.md"),
    (re.compile(r"\[(?:docs/)?[\w/-]+\.md\]\((?=[\w/-]+\.md)"), "[]("),
)
"""Links that GitHub shows, and those of the site: to its pages, by their titles and not by the names of their files."""

_ROW, _UNIT = re.compile(r"^\|.*$", re.MULTILINE), re.compile(r"(?<=\d) (?=(?:[mµn]?s|min|h|[kMG]i?B|[kMG]?bit)\b)")
"""Rows of tables, and the space between a number and its unit, at which no line ends there."""


def _link_to_pages(app: Sphinx, name: str, source: list[str]) -> None:  # noqa: ARG001  # Sphinx's signature
    for link, page in _PAGES:
        source[0] = link.sub(page, source[0])
    source[0] = _ROW.sub(lambda row: _UNIT.sub("\u00a0", row[0]), source[0])


_IN_DOCSTRINGS = re.compile(r"``docs/([a-z-]+)\.md``")


def _link_docstrings(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:  # noqa: ARG001  # Sphinx's signature
    lines[:] = [_IN_DOCSTRINGS.sub(r":doc:`\1`", line) for line in lines]


def _show_examples(app: Sphinx, ctx: object, lines: list[str]) -> None:  # noqa: ARG001  # sphinx-click's signature
    """Turn the blocks of a command's epilog, as ``Examples:``, into blocks of code."""
    made = []
    for line in lines:
        text = line.removeprefix("| ")
        is_title = text != line and not text.startswith(" ")
        made += [text, "", ".. code-block:: text", ""] if is_title else [f"  {text}" if text else ""]
    lines[:] = made


def setup(app: Sphinx) -> None:
    """Rewrite links when a page is read, and examples of commands when they are formatted."""
    app.connect("sphinx-click-process-epilog", _show_examples)
    app.connect("source-read", _link_to_pages)
    app.connect("autodoc-process-docstring", _link_docstrings)
