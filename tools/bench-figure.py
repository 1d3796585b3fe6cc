#!/usr/bin/env python3
"""Draws docs/bench-iscsi.svg from what `brunt bench iscsi --json` printed.

    brunt bench iscsi --json > bench.json && tools/bench-figure.py bench.json > docs/bench-iscsi.svg
"""
import json
import sys

# Who is drawn, in this order, under which name and in which colour (legible on light and dark).
WHO = [
    ("tgt tuned, our initiator, null", "tgt tuned, diskless", "#9a9a9a"),
    ("ours, memory", "Brunt, memory", "#4aa3c7"),
    ("ours, null", "Brunt, diskless", "#1f77b4"),
    ("bare TCP pair", "bare request/response over TCP", "#d98b2b"),
    ("raw TCP (iperf3)", "raw TCP stream (iperf3)", "#b5651d"),
]
BAR, GAP, LEFT, WIDTH = 14, 3, 150, 760


def panel(out, y, title, rows, value, unit):
    """One group of bars for each row; returns where the panel ends."""
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


def main():
    bench = json.load(open(sys.argv[1]))
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
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(WIDTH, int(x))} {y + 12}" role="img" '
          'aria-label="Requests per second and throughput of target and initiator beside their peers">')
    print("<style>text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.n{font-size:11px}"
          "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>")
    print("\n".join(out))
    print("</svg>")


main()
