"""What the pictures share: a page with a background of its own, so that it is legible on light and
dark pages, boxes, lines and text. Python's standard library only."""
from html import escape

SANS = "-apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif"
MONO = "'DejaVu Sans Mono', ui-monospace, Menlo, Consolas, monospace"
INK, SOFT, PAPER, EDGE = "#1c2733", "#5a6877", "#ffffff", "#c9d3dd"
BLUE, GREEN, ORANGE, GREY = "#2563a8", "#2e7d4f", "#b45f06", "#6b7885"


def element(name, content=None, **attributes):
    """Returns an element of SVG; `_` in names of attributes stands for `-`, or `:` in xml_space."""
    said = ""
    for key, value in attributes.items():
        key = key.replace("xml_", "xml:").replace("_", "-")
        value = f"{value:g}" if isinstance(value, float) else str(value)
        said += f' {key}="{escape(value, quote=True)}"'
    return f"<{name}{said}/>" if content is None else f"<{name}{said}>{escape(content)}</{name}>"


class Page:
    """An SVG page of a size and a background; `save` writes it."""

    def __init__(self, width, height, title, background=PAPER):
        head = element("svg", "", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}",
                       width=width, height=height, role="img", aria_label=title)
        self.parts = [head.removesuffix("</svg>"), element("title", title)]
        self.box(0.5, 0.5, width - 1, height - 1, fill=background, radius=10)

    def box(self, x, y, width, height, fill="none", stroke=EDGE, radius=6):
        self.parts.append(element("rect", x=float(x), y=float(y), width=float(width),
                                  height=float(height), rx=radius, fill=fill, stroke=stroke))

    def line(self, x1, y1, x2, y2, stroke=EDGE, width=1.5):
        self.parts.append(element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2),
                                  stroke=stroke, stroke_width=width))

    def text(self, x, y, text, size=14, fill=INK, anchor="start", bold=False, mono=False):
        attributes = {"font_family": MONO if mono else SANS, "font_size": size, "fill": fill}
        if anchor != "start":
            attributes["text_anchor"] = anchor
        if bold:
            attributes["font_weight"] = "bold"
        if mono and text:
            # A width for the whole keeps columns in place whatever font there is.
            attributes.update(textLength=round(len(text) * size * 0.6, 1),
                              lengthAdjust="spacingAndGlyphs", xml_space="preserve")
        self.parts.append(element("text", text, x=float(x), y=float(y), **attributes))

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.parts + ["</svg>", ""]))
