#!/usr/bin/env python3
"""perf/plot_scaling.py REPORT.json PLOT.svg: draws what perf/scaling.py wrote with --output. Needs matplotlib.

Left: tokens per second of each GPU over the number of GPUs, as a share of one GPU's, a line a model and batch; dashed, the same
number of runs of one GPU at once; dotted, compiled DDP as a share of lockstep's one GPU. Right: bus bandwidth of an all-reduce of
half by its size, a line a number of GPUs.
"""
import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

STYLES = {"": "-o", " apart": "--", " compiled DDP": ":s"}


def lines(report):
    """{(run, kind): [(GPUs, tokens per second of one GPU)]} of the weak and the strong runs."""
    found = {}
    for row in report.get("weak", []) + report.get("strong", []):
        if "tokens_per_second_per_gpu" not in row:   # a run that failed
            continue
        kind = next((kind for kind in STYLES if kind and row["name"].endswith(kind)), "")
        found.setdefault((row["name"].removesuffix(kind), kind), []).append((row["ranks"], row["tokens_per_second_per_gpu"]))
    return found


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.splitlines()[0])
    report = json.loads(pathlib.Path(sys.argv[1]).read_text())
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    found = lines(report)
    colours = {run: f"C{place}" for place, run in enumerate(dict.fromkeys(run for run, _ in found))}
    for (run, kind), points in found.items():
        own = dict(found.get((run, ""), []))
        base = own.get(min(own, default=0))
        if not base:
            continue
        points.sort()
        left.plot([n for n, _ in points], [100 * rate / base for _, rate in points], STYLES[kind], color=colours[run], label=run + kind)
    left.axhline(98, color="grey", linewidth=0.5)
    counts = report["counts"]
    left.set(xscale="log", xticks=counts, xticklabels=counts, xlabel="CPU ranks" if report["cpu"] else "GPUs", ylim=(0, 110),
             ylabel="tokens/s of each, % of the first count's", title="scaling")
    left.minorticks_off()
    left.legend(fontsize=7)
    kinds = {}
    for row in report.get("all_reduce", []):
        blocks = f", {row['blocks']} blocks" if row["blocks"] else ""
        kinds.setdefault(f"{row['ranks']} ranks{blocks}", []).append((row["bytes"], row["bus_gb_per_s"]))
    for name, points in kinds.items():
        right.plot(*zip(*sorted(points)), "-o", label=name)
    right.set(xscale="log", xlabel="bytes of half", ylabel="bus bandwidth, GB/s", title="all-reduce")
    if kinds:
        right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
