#!/usr/bin/env python3
"""Draws the two charts over time of a report with a fault, for README: the report's own data as one SVG.

    brunt run examples/far-away.toml --out far-away && tools/report-figure.py far-away/report.html > docs/report.svg
"""
import html
import json
import math
import re
import sys

WIDTH, LEFT, RIGHT, TOP = 760, 70, 16, 46
COLOURS = ["#1f77b4", "#e08214", "#2ca25f", "#8253b6"]  # legible on light and dark
REFERENCE = "#888"


def quantity(value, unit):
    if unit == "micros":
        for below, by, name in ((1e3, 1, "µs"), (1e6, 1e3, "ms"), (math.inf, 1e6, "s")):
            if value < below:
                return f"{value / by:g} {name}"
    return f"{value / 1e3:g} k/s" if value >= 1e3 else f"{value:g}/s"


def ticks(low, high, log):
    if log:
        return [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) if low <= 10.0**e <= high]
    step = 10 ** math.floor(math.log10(high))
    step = next(step * part for part in (0.2, 0.25, 0.5, 1, 2) if high / (step * part) <= 5)
    return [step * index for index in range(int(high / step) + 1)]


def stroke(one):
    """The style of a series, by its role on the page."""
    if "reference" in one["role"]:
        return f'stroke="{REFERENCE}" stroke-width="1.4" stroke-dasharray="5 4"'
    return f'stroke="{COLOURS[one["role"]["run"] % len(COLOURS)]}" stroke-width="1.3"'


def chart(out, top, height, data, title):
    log = data["y"]["scale"] == "log"
    xs = data["xs"]
    series = data["series"]
    values = [value for one in series for value in one["values"] if value]
    low, high = (min(values), max(values)) if log else (0, max(values) * 1.05)
    place = (lambda v: math.log(v / low) / math.log(high / low)) if log else (lambda v: v / high)
    across = lambda x: LEFT + (x - xs[0]) / (xs[-1] - xs[0]) * (WIDTH - LEFT - RIGHT)
    up = lambda v: top + height - place(v) * height
    out.append(f'<text x="{LEFT}" y="{top - 10}" class="t">{title}</text>')
    at = WIDTH - RIGHT
    for one in reversed(series):
        at -= 7 * len(one["name"]) + 28
        out.append(f'<path d="M{at} {top - 14}h16" {stroke(one)}/>')
        out.append(f'<text x="{at + 20}" y="{top - 10}">{html.escape(one["name"])}</text>')
    for span in data.get("spans", []):
        begin, end = across(span["from"]), across(span.get("to", xs[-1]))
        out.append(f'<rect x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="{height}" fill="#d6604d" fill-opacity="0.16"/>')
        out.append(f'<text x="{begin + 6:.1f}" y="{top + 14}" class="f">{html.escape(span["label"])}</text>')
    for tick in ticks(low, high, log):
        out.append(f'<path d="M{LEFT} {up(tick):.1f}H{WIDTH - RIGHT}" class="g"/>')
        out.append(f'<text x="{LEFT - 8}" y="{up(tick) + 4:.1f}" text-anchor="end">{quantity(tick, data["y"]["unit"])}</text>')
    for second in range(math.ceil(xs[0]), math.floor(xs[-1]) + 1):
        out.append(f'<text x="{across(second):.1f}" y="{top + height + 16}" text-anchor="middle">{second} s</text>')
    for one in series:
        points = " ".join(f"{across(x):.1f},{up(v):.1f}" for x, v in zip(xs, one["values"]) if v is not None)
        out.append(f'<polyline points="{points}" fill="none" {stroke(one)}/>')


def main():
    page = open(sys.argv[1], encoding="utf-8").read()
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    charts = [one for one in json.loads(text.replace("<\\/", "</"))["charts"] if one.get("spans")]
    named = lambda title: next(one for one in charts if one["title"] == title)
    name = re.search(r"<h1[^>]*>(.*?)</h1>", page, re.S)[1]
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" '
        f'viewBox="0 0 {WIDTH} 480"><style>text{{fill:#777}}.t,.h{{font-weight:bold}}.h{{font-size:15px}}'
        ".f{fill:#c0392b}.g{stroke:#888;stroke-opacity:.25}</style>",
        f'<text x="{LEFT}" y="20" class="h">{name}</text>',
    ]
    chart(out, TOP + 20, 150, named("Throughput"), "requests a second")
    chart(out, TOP + 240, 160, named("99th percentile of the response time"), "p99 of the response time (log scale)")
    print("\n".join(out + ["</svg>"]))


main()
