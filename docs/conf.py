"""How `make docs` builds the site: from this folder, the examples and the docstrings; nothing is fetched."""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import sgdlimit  # noqa: E402  the path comes first

project = "sgdlimit"
author = "The sgdlimit developers"
copyright = author
version = release = sgdlimit.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_copybutton",
    "commands",
    "docstrings",
    "example_pages",
    "mathml",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "gallery/cards.md", "notebooks"]
nitpicky = False

# signatures carry the types; one parameter a line where they are long
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = False
python_maximum_signature_line_length = 80
python_display_short_literal_types = True
add_module_names = False

highlight_language = "text"
html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"sgdlimit {release}"
found = importlib.util.find_spec("ziamath")  # has STIX Two Math, which browsers need for formulas that look like such
assert found is not None
assert found.origin is not None
html_static_path = ["_static", str(Path(found.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0060a0", "color-brand-content": "#0060a0"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
