#!/usr/bin/env python3
"""perf/overlap.py: what overlapping the gradient reduction with the backward pass is worth, on all GPUs of this node.

    perf/overlap.py [--binary build/release/bin/lockstep] [--data datasets/mnist/train] [--hidden 8192] [--rounds 3]

Trains `mlp` with --overlap on and off, alternating, and on one GPU at the same batch per GPU. All losses must be equal bit
for bit between the two. Prints a table and one JSON line. Formulas are in perf/README.md.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def gpus():
    return subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout.count("GPU ")


def train(arguments, folder, ranks, *more):
    command = ["mpirun", "-np", str(ranks), "--bind-to", "none", arguments.binary, "train", "--model", "mlp", "--hidden",
               str(arguments.hidden), "--data", arguments.data, "--run", folder, "--device", "cuda", "--lr", "1e-4",
               "--global-batch", str(arguments.batch * ranks), "--steps", "400", "--report-every", "50", "--progress", "off",
               "--shuffle", "full", *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["step"] % 50 == 0]
    return {"step_seconds": statistics.median(line["step_seconds"] for line in lines[2:]),
            "data_wait_seconds": statistics.median(line["data_wait_seconds"] for line in lines[2:]),
            "losses": [line["loss"] for line in lines]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--data", default=str(ROOT / "datasets/mnist/train"))
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=1000, help="samples a GPU and step")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ranks = gpus()
    kinds = {"one GPU": (1,), f"{ranks} GPUs, overlap": (ranks, "--overlap", "on"),
             f"{ranks} GPUs, overlap, 16 MiB buckets": (ranks, "--overlap", "on", "--bucket-bytes", "16MiB"),
             f"{ranks} GPUs, --overlap off": (ranks, "--overlap", "off")}
    runs = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            for place, (name, (count, *more)) in enumerate(kinds.items()):
                runs[name].append(train(arguments, f"{folder}/{number}-{place}", count, *more))
    many = [run["losses"] for name, group in runs.items() if name != "one GPU" for run in group]
    equal = all(losses == many[0] for losses in many)
    seconds = {name: statistics.median(run["step_seconds"] for run in group) for name, group in runs.items()}
    for name, value in seconds.items():
        waits = statistics.median(run["data_wait_seconds"] for run in runs[name])
        print(f"{name:36s} {1e3 * value:8.3f} ms/step   data wait {1e3 * waits:6.3f} ms")
    overlap, none = seconds[f"{ranks} GPUs, overlap"], seconds[f"{ranks} GPUs, --overlap off"]
    print(f"off / on {none / overlap:.3f}; losses {'equal' if equal else 'DIFFER'}")
    print(json.dumps({"benchmark": "overlap", "gpus": ranks, "hidden": arguments.hidden, "batch_per_gpu": arguments.batch,
                      "step_seconds": seconds, "ratio": none / overlap, "losses_equal": equal}))
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
