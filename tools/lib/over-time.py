"""Extracts rates over time from reports printed by a guest, for tools/over-page-cache.sh.

    over-time.py SAID OUT.json     SAID has for each run "report HOW NUMBER", the page as base64 of gzip, and "end"

Writes the intervals of each run, and prints their mean, minimum and maximum, and how far an interval is from the mean of its
run (standard deviation over mean).
"""
import base64
import gzip
import json
import math
import re
import sys

# Student's t for 95 %, by degrees of freedom.
STUDENT = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def rates(page):
    """Requests per second of each interval, from the chart's own data."""
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    chart = next(one for one in json.loads(text.replace("<\\/", "</"))["charts"] if one["title"] == "Throughput")
    series = next(one for one in chart["series"] if "reference" not in one["role"])
    return chart["xs"], [value or 0.0 for value in series["values"]]


def half_interval(values):
    if len(values) < 2:
        return math.nan
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return STUDENT[min(len(values) - 2, len(STUDENT) - 1)] * deviation / math.sqrt(len(values))


def main():
    said, out = sys.argv[1:]
    runs = []
    for how, run, packed in re.findall(r"^report (\S+) (\d+)\n(.*?)^end$", open(said).read(), re.S | re.M):
        seconds, requests = rates(gzip.decompress(base64.b64decode(packed)).decode())
        runs.append({"how": how, "run": int(run), "seconds": seconds, "requests_per_s": requests})
    if not runs:
        sys.exit("over-time.py: the guest printed no report")
    with open(out, "w") as file:
        json.dump({"unit": "requests/s over time", "runs": runs}, file)
    print(f"{'':12} {'runs':>4} {'mean, requests/s':>20} {'least':>7} {'most':>7} {'deviation over time':>22}")
    for how in dict.fromkeys(run["how"] for run in runs):
        series = [run["requests_per_s"] for run in runs if run["how"] == how]
        means = [sum(one) / len(one) for one in series]
        spreads = [math.sqrt(sum((value - mean) ** 2 for value in one) / len(one)) / mean for one, mean in zip(series, means)]
        mean, spread = sum(means) / len(means), sum(spreads) / len(spreads)
        show = lambda half, digits: "" if math.isnan(half) else f" ± {half:.{digits}f}"
        print(f"{how:12} {len(series):>4} {f'{mean:.0f}' + show(half_interval(means), 0):>20} "
              f"{min(map(min, series)):>7.0f} {max(map(max, series)):>7.0f} "
              f"{f'{spread * 100:.0f}' + show(half_interval(spreads) * 100, 0) + ' %':>22}")


main()
