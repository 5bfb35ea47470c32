#!/usr/bin/env python3
"""perf/lenet.py: steps per second of `lockstep train --model lenet` beside PyTorch eager AMP, on the same GPU in one run.

    perf/lenet.py [--binary build/release/bin/lockstep] [--data datasets/mnist/train] [--digits mnist_5k.csv.gz] [--rounds 3]

Both train on the same digits with batch 64 in FP16; the two alternate, so that neither gets the warmer card. Ours includes
everything: reading shards, the loader, metrics. PyTorch's data lies on the GPU from the start. Each side's loss must fall
below 0.5, or the figure is refused. Prints a table and one JSON line; perf/README.md states the formulas.
Needs python3 with PyTorch of the same wheel. Exit code 1 when a check fails or ours is below 5x.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def ours(arguments, folder, graph):
    command = [arguments.binary, "train", "--model", "lenet", "--data", arguments.data, "--run", folder, "--device", "cuda",
               "--precision", "fp16", "--global-batch", "64", "--epochs", "100", "--report-every", "500", "--progress", "off",
               "--graph", graph]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    reports = [line for line in lines if "eval_loss" not in line and line["step"] % 500 == 0]
    rate = statistics.median(1 / line["step_seconds"] for line in reports[2:])
    return {"steps_per_second": rate, "loss": reports[-1]["loss"],
            "data_wait_seconds": statistics.median(line["data_wait_seconds"] for line in reports[2:])}


def eager(arguments):
    script = ROOT / "perf/peers/lenet_eager.py"
    done = subprocess.run([sys.executable, script, arguments.digits], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--data", default=str(ROOT / "datasets/mnist/train"))
    parser.add_argument("--digits", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows = {"lockstep, one graph": [], "lockstep, op by op": [], "PyTorch eager AMP": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            rows["lockstep, one graph"].append(ours(arguments, f"{folder}/on-{number}", "on"))
            rows["PyTorch eager AMP"].append(eager(arguments))
            rows["lockstep, op by op"].append(ours(arguments, f"{folder}/off-{number}", "off"))
    rates = {name: statistics.median(run["steps_per_second"] for run in runs) for name, runs in rows.items()}
    spread = {name: max(run["steps_per_second"] for run in runs) / min(run["steps_per_second"] for run in runs)
              for name, runs in rows.items()}
    ratio = rates["lockstep, one graph"] / rates["PyTorch eager AMP"]
    good = all(run["loss"] < 0.5 for runs in rows.values() for run in runs)
    for name, rate in rates.items():
        print(f"{name:24s} {rate:9.0f} steps/s  {1e6 / rate:8.0f} us/step  (max/min {spread[name]:.2f})")
    print(f"ratio {ratio:.1f}, losses {'fall' if good else 'DO NOT FALL'}")
    version = subprocess.run([arguments.binary, "--version"], capture_output=True, text=True).stdout.strip()
    peer = rows["PyTorch eager AMP"][0]
    print(json.dumps({"benchmark": "lenet", "batch": 64, "precision": "fp16", "device": peer["device"], "lockstep": version,
                      "torch": peer["version"], "steps_per_second": rates, "max_over_min": spread, "ratio": ratio,
                      "losses_fall": good, "rounds": arguments.rounds}))
    return 0 if good and ratio >= 5 else 1


if __name__ == "__main__":
    sys.exit(main())
