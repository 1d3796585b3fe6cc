#!/usr/bin/env python3
"""Draws the figures of docs/ from the --json output of benchmarks:

    brunt-bench iscsi --json > bench.json && tools/bench-figure.py bench.json > docs/bench-iscsi.svg
    brunt-bench actors --json > actors.json && tools/bench-figure.py actors.json > docs/bench-actors.svg
    brunt-bench capture --loss=0.5,1,2,5 --json > loss.json && tools/bench-figure.py loss.json > docs/bench-loss.svg
    tools/over-page-cache.sh out && tools/bench-figure.py out/over-time.json > docs/over-page-cache.svg
"""
import html
import json
import math
import sys

# The contestants drawn, in this order, with their names and colours (legible on light and dark backgrounds).
WHO = [
    ("tgt tuned, our initiator, null", "tgt tuned, diskless", "#9a9a9a"),
    ("ours, memory", "Brunt, memory", "#4aa3c7"),
    ("ours, null", "Brunt, diskless", "#1f77b4"),
    ("bare TCP pair", "bare request/response over TCP", "#d98b2b"),
    ("raw TCP (iperf3)", "raw TCP stream (iperf3)", "#b5651d"),
]
BAR, GAP, LEFT, WIDTH = 14, 3, 150, 760


def panel(out, y, title, rows, value, unit):
    """Draws one group of bars per row; returns the y position below the panel."""
    largest = max(value(row, c) for row in rows for c in row["contestants"] if c["who"] in dict((w[0], 1) for w in WHO))
    scale = (WIDTH - LEFT - 110) / largest
    out.append(f'<text x="10" y="{y}" class="t">{title}</text>')
    y += 14
    for row in rows:
        found = {c["who"]: c for c in row["contestants"]}
        present = [w for w in WHO if w[0] in found]
        middle = y + len(present) * (BAR + GAP) / 2 + 4
        out.append(f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{row["row"]}</text>')
        for name, _, colour in present:
            amount = value(row, found[name])
            length = max(amount * scale, 1)
            out.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
            out.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + 11}" class="n">{amount:,.{0 if amount >= 100 else 2}f} {unit}</text>')
            y += BAR + GAP
        y += 8
    return y + 14


def iscsi(bench):
    small = [r for r in bench["rows"] if r["row"].startswith("4k") and "depth 32" in r["row"]]
    large = [r for r in bench["rows"] if r["row"].split("k")[0] in ("64", "256") or r["row"].startswith("1m")]
    size = {"4": 4096, "6": 65536, "2": 262144, "1": 1 << 20}
    out = []
    y = panel(out, 24, "4 KiB random requests, one connection", small, lambda _, c: c["requests_per_s"] / 1e3, "k IOPS")
    y = panel(out, y, "Throughput, one connection", large,
              lambda r, c: c["requests_per_s"] * size[r["row"][0]] / 1e9, "GB/s")
    x = 10
    for _, label, colour in WHO:
        out.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{colour}"/><text x="{x + 15}" y="{y}" class="n">{label}</text>')
        x += 30 + 6.2 * len(label)
    return out, max(WIDTH, int(x)), y + 12, "Requests per second and throughput of target and initiator beside their peers"


def axis(out, left, right, top, height, most, unit):
    """Draws the lines and labels of an axis from zero; returns a function from values to positions."""
    step = 10 ** math.floor(math.log10(most)) if most > 0 else 1
    step = next(step * part for part in (0.2, 0.25, 0.5, 1, 2, 2.5) if most / (step * part) <= 4)
    place = lambda value: top + height - value / (most * 1.06) * height
    for index in range(int(most * 1.06 / step) + 1):
        at = place(index * step)
        out.append(f'<path d="M{left} {at:.1f}H{right}" class="g"/>')
        out.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end" class="n">{index * step:g}{unit if index else ""}</text>')
    return place


# The actor runtimes drawn, with their names and colours.
ACTORS = [
    ("brunt_pinned", "Brunt, pinned", "#1f77b4"), ("brunt", "Brunt", "#4aa3c7"),
    ("go", "Go", "#d98b2b"), ("erlang", "Erlang", "#8253b6"),
]


def actors(bench):
    """Messages per second over scheduler threads, one panel per pattern; dashed lines: with a competing thread."""
    out, width, height, left = [], WIDTH, 200, 56
    each = (width - 20) / 2
    for nth, pattern in enumerate(("ring", "all-to-all")):
        rows = [row for row in bench["rows"] if row["pattern"] == pattern]
        if not rows:
            continue
        threads = sorted({row["threads"] for row in rows})
        begin, end = left + nth * each, nth * each + each - 10
        most = max(rate for row in rows for runs in row["runs"].values() for rate in runs) / 1e6
        out.append(f'<text x="{begin}" y="24" class="t">{pattern}, million messages/s</text>')
        place = axis(out, begin, end, 40, height, most, "")
        across = lambda count: begin + (threads.index(count) + 0.5) / len(threads) * (end - begin)
        for count in threads:
            out.append(f'<text x="{across(count):.1f}" y="{height + 58}" text-anchor="middle" class="n">{count}</text>')
        out.append(f'<text x="{(begin + end) / 2:.1f}" y="{height + 74}" text-anchor="middle" class="n">scheduler threads</text>')
        for index, (who, _, colour) in enumerate(ACTORS):
            for load in (False, True):
                found = [row for row in rows if row["competing_load"] == load and who in row]
                shift = (index - 1.5) * 9 + (4 if load else 0)
                points = " ".join(f"{across(row['threads']) + shift:.1f},{place(row[who] / 1e6):.1f}" for row in found)
                dash = ' stroke-dasharray="4 3"' if load else ""
                out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
                for row in found:
                    x, runs = across(row["threads"]) + shift, row["runs"][who]
                    low, high = place(min(runs) / 1e6), place(max(runs) / 1e6)
                    out.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-width="1.2"/>')
                    fill = "none" if load else colour
                    out.append(f'<circle cx="{x:.1f}" cy="{place(row[who] / 1e6):.1f}" r="3" fill="{fill}" stroke="{colour}"/>')
    x, y = 10, height + 98
    for _, label, colour in ACTORS:
        out.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{colour}"/><text x="{x + 15}" y="{y}" class="n">{label}</text>')
        x += 34 + 6.2 * len(label)
    out.append(f'<text x="{x}" y="{y}" class="n">hollow, dashed: beside a thread that computes; upright: lowest to highest run</text>')
    return out, width, y + 12, "Messages a second over scheduler threads, beside Go and Erlang"


def loss(bench):
    """Rate, operations and backlog over time of the first capture, with alternating periods of packet loss."""
    capture = bench["captures"][0]
    figures = capture["over_time"]
    out, left, right, height = [], 64, WIDTH - 12, 110
    seconds = figures["elapsed_s"]
    across = lambda at: left + at / seconds * (right - left)
    panels = [
        ("Packets arriving, Gb/s", lambda one: one["bits_per_s"] / 1e9, "#1f77b4"),
        ("Operations found, thousand/s", lambda one: one["operations_per_s"] / 1e3, "#2ca25f"),
        ("Backlog: arrived and not yet analysed, MB", lambda one: one["backlog_bytes"] / 1e6, "#d98b2b"),
        ("Kept because something before it is missing, MB", lambda one: one["kept_bytes"] / 1e6, "#8253b6"),
    ]
    top = 52
    out.append(f'<text x="{left}" y="20" class="t">{html.escape(capture["capture"])}: '
               f'{figures["arriving_bits_per_s"] / 1e9:.1f} Gb/s arriving; without losses it would take {figures["capacity_bits_per_s"] / 1e9:.1f}</text>')
    for title, value, colour in panels:
        values = [value(one) for one in figures["intervals"]]
        out.append(f'<text x="{left}" y="{top - 8}" class="t">{title}</text>')
        for turn in figures["turns"]:
            if turn["lost_share"] > 0:
                begin, end = across(turn["from_s"]), across(turn["to_s"])
                out.append(f'<rect x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="{height}" fill="#d6604d" fill-opacity="0.16"/>')
                # Label the loss only once, in the first panel, whose line is far from zero there.
                if title == panels[0][0]:
                    out.append(f'<text x="{begin + 4:.1f}" y="{top + height - 7}" class="f">{turn["lost_share"] * 100:g} % lost</text>')
        place = axis(out, left, right, top, height, max(max(values), 1e-3), "")
        middle = lambda one: across((one["start_s"] + one["end_s"]) / 2)
        points = " ".join(f"{middle(one):.1f},{place(at):.1f}" for one, at in zip(figures["intervals"], values))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        top += height + 34
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if seconds / step <= 10)
    for index in range(int(seconds / step) + 1):
        out.append(f'<text x="{across(index * step):.1f}" y="{top - 18}" text-anchor="middle" class="n">{index * step:g} s</text>')
    return out, WIDTH, top - 6, "Rate, operations and backlog over time while packets are lost"


# Ways of writing to the disk, with their names and colours.
WAYS = [("page-cache", "through the page cache", "#d98b2b"), ("below-it", "below it", "#1f77b4")]


def over_time(bench):
    """Requests per second over time, one line per run."""
    out, left, right, top, height = [], 64, WIDTH - 12, 40, 200
    runs = bench["runs"]
    seconds = max(run["seconds"][-1] for run in runs)
    across = lambda at: left + at / seconds * (right - left)
    out.append(f'<text x="{left}" y="24" class="t">Random writes of 16 KiB, requests/s</text>')
    place = axis(out, left, right, top, height, max(max(run["requests_per_s"]) for run in runs), "")
    for how, _, colour in WAYS:
        for run in (run for run in runs if run["how"] == how):
            points = " ".join(f"{across(at):.1f},{place(rate):.1f}" for at, rate in zip(run["seconds"], run["requests_per_s"]))
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1e9) if seconds / step <= 10)
    for index in range(int(seconds / step) + 1):
        out.append(f'<text x="{across(index * step):.1f}" y="{top + height + 18}" text-anchor="middle" class="n">{index * step:g} s</text>')
    x, y = left, top + height + 44
    for _, label, colour in WAYS:
        out.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{colour}"/><text x="{x + 15}" y="{y}" class="n">{label}</text>')
        x += 34 + 6.2 * len(label)
    return out, WIDTH, y + 12, "Random writes over time, through the page cache and below it"


def main():
    bench = json.load(open(sys.argv[1]))
    kinds = {"messages/s": actors, "requests/s over time": over_time}
    kind = loss if "captures" in bench else kinds.get(bench.get("unit"), iscsi)
    out, width, height, label = kind(bench)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">')
    print("<style>text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.n{font-size:11px}.f{font-size:11px;fill:#c0392b}"
          ".g{stroke:#888;stroke-opacity:.25}@media(prefers-color-scheme:dark){text{fill:#ddd}.f{fill:#ff8a80}}</style>")
    print("\n".join(out))
    print("</svg>")


main()
