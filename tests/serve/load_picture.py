"""An SVG of load.py's figures: the time to the first token and between tokens, over the share of the capacity."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 420, 300, 64, 48, 44, 24
COLOURS = {"p50": "#2a7f62", "p99": "#c77d1e", "p99.9": "#b3312c"}
PANELS = [("first_token_ms", "time to the first token, ms"), ("between_tokens_ms", "time between tokens, ms")]


def text(x, y, content, anchor="middle", colour="#444", size=12):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">'
            f'{escape(content)}</text>')


def decades(values):
    """From a power of ten below all values to one above."""
    low = math.floor(math.log10(max(min(values), 0.001)))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def panel(levels, name, title, offset):
    points = [(level["percent_of_capacity"], level[name]) for level in levels if level[name]["p50"] is not None]
    parts = [text(offset + LEFT + (WIDTH - LEFT) / 2, TOP - 16, title, size=14)]
    if not points:
        return parts
    low, high = decades([value for _, values in points for value in values.values()])

    def x(percent):
        return offset + LEFT + percent / 100 * (WIDTH - LEFT - 50)

    def y(value):
        share = (math.log10(max(value, 0.001)) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    for power in range(low, high + 1):
        parts.append(f'<path d="M{x(0):.1f} {y(10 ** power):.1f}H{x(100):.1f}" stroke="#ddd"/>')
        parts.append(text(x(0) - 8, y(10 ** power) + 4, f"{10 ** power:g}", "end"))
    for percent in [0, 25, 50, 75, 100]:
        parts.append(text(x(percent), HEIGHT - BOTTOM + 18, f"{percent}%"))
    for percentile, colour in COLOURS.items():
        line = " ".join(f"{x(percent):.1f},{y(values[percentile]):.1f}" for percent, values in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(percent):.1f}" cy="{y(values[percentile]):.1f}" r="3" fill="{colour}">'
                  f'<title>{percentile} at {percent}%: {values[percentile]} ms</title></circle>'
                  for percent, values in points]
    return parts


def draw(figures):
    whole = 2 * WIDTH + GAP
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {HEIGHT + 24}" font-family="sans-serif">',
             f'<rect width="{whole}" height="{HEIGHT + 24}" fill="white"/>']
    for i, (name, title) in enumerate(PANELS):
        parts += panel(figures["levels"], name, title, i * (WIDTH + GAP))
    note = f"requests as a share of the capacity, {figures['capacity_requests_a_second']:g} a second"
    parts.append(text(whole / 2, HEIGHT + 12, note))
    for i, (percentile, colour) in enumerate(COLOURS.items()):
        parts.append(text(whole - 150 + 50 * i, 16, percentile, colour=colour, size=13))
    return "\n".join(parts) + "\n</svg>\n"
