"""What the pictures share: a page with a background of its own, so that it is legible on light and
dark pages, boxes, lines and text. Python's standard library only."""
from html import escape

SANS = "-apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif"
MONO = "'DejaVu Sans Mono', ui-monospace, Menlo, Consolas, monospace"
INK, SOFT, PAPER, EDGE = "#1c2733", "#5a6877", "#ffffff", "#c9d3dd"
BLUE, GREEN, ORANGE, GREY = "#2563a8", "#2e7d4f", "#b45f06", "#8794a1"


class Page:
    """An SVG page of a size and a background; `save` writes it."""

    def __init__(self, width, height, title, background=PAPER):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img" aria-label="{escape(title, quote=True)}">',
            f"<title>{escape(title)}</title>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10" fill="{background}"'
            f' stroke="{EDGE}"/>',
        ]

    def box(self, x, y, width, height, fill="none", stroke=EDGE, radius=6):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"'
                          f' fill="{fill}" stroke="{stroke}"/>')

    def line(self, x1, y1, x2, y2, stroke=EDGE, width=1.5, dash=None):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{stroke}"'
                          f' stroke-width="{width}"{dashes}/>')

    def text(self, x, y, text, size=14, fill=INK, anchor="start", bold=False, mono=False):
        weight = ' font-weight="bold"' if bold else ""
        # A width for the whole keeps columns in place whatever font there is.
        width = f' textLength="{len(text) * size * 0.6:.1f}" lengthAdjust="spacingAndGlyphs"' if mono and text else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-family="{MONO if mono else SANS}" font-size="{size}"'
                          f' fill="{fill}" text-anchor="{anchor}"{weight}{width} xml:space="preserve">'
                          f"{escape(text)}</text>")

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.parts + ["</svg>", ""]))
