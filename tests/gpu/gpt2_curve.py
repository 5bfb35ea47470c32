#!/usr/bin/env python3
"""gpt2_curve.py TEXT: 200 steps of FP16 training on real text against PyTorch in FP32 (TF32 products), four seeds each.

GPT-2 124M, sequences of 256 bytes of TEXT (plain or gzip), 16 a step, the same rows in the same order; a seed sets the initial
weights alone. Ours begins with a loss scale of 1,024, at which no step is skipped; how many the default first scale skips is
printed beside, from one more run. In every window of 20 steps the mean of our losses must be within the spread of PyTorch's own seeds (largest less
smallest) of PyTorch's mean. Prints the table and one JSON line; exit code 1 where a window is not. Needs a GPU, and python3
with torch and h5py. LOCKSTEP_BINARY names the program.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/end_to_end"), str(ROOT / "perf/peers")]
import lockstep_run as lr  # noqa: E402

STEPS, BATCH, LENGTH, WINDOW, SEEDS = 200, 16, 256, 20, (1, 2, 3, 4)
LR = 1e-4   # perf/peers/gpt2.py's own


def ours(data, folder, seed, **changes):
    """The loss of each step, and the number of skipped steps."""
    run = pathlib.Path(folder) / f"run-{seed}-{len(changes)}"
    settings = {"model": "gpt2", "data": data, "run": run, "device": "cuda", "global_batch": BATCH, "steps": STEPS, "shuffle": "none",
                "lr": LR, "clip_norm": 1, "report_every": 1, "progress": "off", "seed": seed, **changes}
    subprocess.run([str(word) for word in (lr.BINARY, "train", *lr.flags(settings))], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines], lines[-1]["skipped_steps"]


def torchs(data):
    import gpt2
    import torch
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda", 0)
    tokens, targets, vocabulary = gpt2.batches(data, BATCH, STEPS, 0, 1, device)
    curves = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = gpt2.Gpt2(*gpt2.SIZES["124m"], LENGTH, vocabulary).to(device)
        model.classes = vocabulary   # 127 of 384 columns are padding here
        step = gpt2.automatic(model, "tf32", device, 1)
        curves.append(torch.stack([step(tokens[i], targets[i]).clone() for i in range(STEPS)]).tolist())
    return curves


def main():
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        subprocess.run([str(lr.BINARY), "pack", "text", "--input", sys.argv[1], "--output", str(data), "--sequence-length", str(LENGTH)],
                       check=True, stdout=subprocess.DEVNULL)
        theirs = torchs(data)
        mine, skipped = zip(*(ours(data, folder, seed, init_scale=1024) for seed in SEEDS))
        by_default = ours(data, folder, SEEDS[0])[1]
    print(f"skipped steps: {sum(skipped)}; with the default first scale, seed {SEEDS[0]}: {by_default}")
    good, rows = True, []
    for first in range(0, STEPS, WINDOW):
        means = lambda curves: [statistics.mean(curve[first:first + WINDOW]) for curve in curves]
        a, b = means(mine), means(theirs)
        row = {"steps": [first + 1, first + WINDOW], "ours": statistics.mean(a), "torch": statistics.mean(b), "spread": max(b) - min(b),
               "ours_spread": max(a) - min(a)}
        row["within"] = abs(row["ours"] - row["torch"]) <= row["spread"]
        good = good and row["within"]
        rows.append(row)
        print(f"steps {first + 1:3d}-{first + WINDOW:3d}: ours {row['ours']:.4f}  torch FP32 {row['torch']:.4f}  "
              f"its spread {row['spread']:.4f}  {'within' if row['within'] else 'NOT WITHIN'}")
    print(json.dumps({"benchmark": "gpt2_curve", "seeds": len(SEEDS), "windows": rows, "within": good, "skipped": sum(skipped),
                      "skipped_by_default": by_default}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
