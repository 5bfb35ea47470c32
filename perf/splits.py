#!/usr/bin/env python3
"""How far losses and loss scales of 2 and 4 CPU ranks part from those of one, with one global batch and seed.

    perf/splits.py [--models lenet,mlp] [--seeds 6] [--first-seed 1]    prints one JSON line

200 rows of 12 x 12 (those of tests/end_to_end), batch 16, 50 steps, FP16, other settings at their defaults; then with a scale
that grows every second or fourth clean step from 2^20, so that it overflows again and again. Difference: the largest
over the steps of |a - b| / max(a, b), by seed, at 2 and at 4 ranks. LOCKSTEP_BINARY names the program.
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/end_to_end"))
import lockstep_run as lr  # noqa: E402

SCALES = {"default": {}, "growth interval 2": {"growth_interval": 2, "init_scale": 2**20},
          "growth interval 4": {"growth_interval": 4, "init_scale": 2**20}}
BOUND = 5e-3


def checked(command):
    result = lr.run(command)
    if result.code != 0:
        sys.exit(str(result))
    return result


def train(folder, ranks, **settings):
    run = folder / "run"
    checked(lr.on_ranks(ranks, "train", *lr.flags({
        "hidden": 16, "device": "cpu", "report_every": 1, "progress": "off", "data": folder / "data", "run": run,
        "global_batch": 16, "steps": 50, **settings})))
    trained = lr.Run(run)
    columns = {name: trained.column(name) for name in ("loss", "loss_scale")}
    shutil.rmtree(run)
    return columns


def difference(left, right):
    return max(abs(a - b) / max(a, b) for a, b in zip(left["loss"], right["loss"]))


def measure(folder, seeds, **settings):
    found = {"np2": [], "np4": [], "scales_alike": 0}
    for seed in seeds:
        alone = train(folder, 1, seed=seed, **settings)
        for ranks in (2, 4):
            together = train(folder, ranks, seed=seed, **settings)
            found[f"np{ranks}"].append(float(f"{difference(alone, together):.1e}"))
            found["scales_alike"] += alone["loss_scale"] == together["loss_scale"]
    both = found["np2"] + found["np4"]
    return {**found, "comparisons": len(both), "within_5e-3": sum(part <= BOUND for part in both), "worst": max(both)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="lenet,mlp")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-splits-"))
    try:
        lr.write_csv(folder / "rows.csv", 200)
        checked([lr.BINARY, "pack", "csv", *lr.flags({"input": folder / "rows.csv", "shape": "1x12x12",
                                                     "output": folder / "data", "shards": 2})])
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        results = {model: {name: measure(folder, seeds, model=model, **scale) for name, scale in SCALES.items()}
                   for model in options.models.split(",")}
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"benchmark": "splits", "version": checked([lr.BINARY, "--version"]).output.splitlines()[0],
                      "seeds": list(seeds), "results": results}))


if __name__ == "__main__":
    main()
