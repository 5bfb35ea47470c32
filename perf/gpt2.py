#!/usr/bin/env python3
"""perf/gpt2.py: tokens per second of `lockstep train --model gpt2` beside PyTorch, on the same GPU in one run.

    perf/gpt2.py (--data TOKENS | --text FILE) [--binary build/release/bin/lockstep] [--ranks 1] [--rounds 1] [--output FILE]
                 [--runs 124m:64:ours+compile+expert,124m:4:ours+compile+graphs,350m:32:ours+compile,1.5b:8:ours+compile]

TOKENS is a folder made by `lockstep pack text --sequence-length 1024`. --text makes rows of 1,024 words of a text instead, plain
or gzip, each word's id its rank by frequency, in a vocabulary of 50,257: no tokenizer, but a language's distribution. Modes: ours,
ours-tf32, -bf16, -recompute, -overlap; ours-one: one rank; ours-apart: as many runs of one rank at once as there are ranks, the
same step without reduction; compile, graphs, expert, eager, tf32: perf/peers/gpt2.py. Every side trains from the same distribution of
initial weights on the same rows in the same order; ours is the whole program: shards, loader, metrics. A figure counts
only when the losses of all sides fall, and agree within 3 % at the last step. Prints a table and one JSON line;
perf/README.md states the formulas. Needs python3 with PyTorch of the same wheel and h5py.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "perf/peers/gpt2.py"
STEPS = 45   # 25 of them timed
AGREE = 0.03
LENGTH, VOCABULARY = 1024, 50257


def write_words(path, folder):
    """One shard of token rows: the text's words by their rank of frequency."""
    import h5py
    import numpy
    raw = pathlib.Path(path).read_bytes()
    words = re.findall(rb"\w+|[^\w\s]", gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    ranks = {word: rank for rank, (word, _) in enumerate(collections.Counter(words).most_common(VOCABULARY - 1))}
    ids = numpy.array([ranks.get(word, VOCABULARY - 1) for word in words], dtype=numpy.uint16)
    rows = (len(ids) - 1) // LENGTH
    with h5py.File(pathlib.Path(folder) / "train-00000-of-00001.h5", "w") as file:
        file["tokens"] = numpy.stack([ids[row * LENGTH:row * LENGTH + LENGTH + 1] for row in range(rows)])
        file.attrs["format"] = "lockstep-1"
        file.attrs["vocabulary"] = VOCABULARY
    return folder


class UsedMemory:
    """The greatest memory in use on the first visible GPU while the block runs, above what was in use before, in GiB."""

    def __enter__(self):
        self.peak, self.base, self.done = 0.0, self.read(), threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def watch(self):
        while not self.done.wait(0.2):
            self.peak = max(self.peak, self.read() - self.base)

    @staticmethod
    def read():
        try:
            import pynvml
            pynvml.nvmlInit()
            first = int(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])
            return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(first)).used / 2**30
        except Exception:   # the figure is an extra
            return 0.0


def ours(arguments, size, batch, extra=(), ranks=1, apart=1):
    """One run of `ranks` ranks; with `apart` that many such runs at once, each on a GPU of its own, of which the slowest counts."""
    with tempfile.TemporaryDirectory() as folder:
        runs, started = [pathlib.Path(folder) / f"run-{number}" for number in range(apart)], []
        with UsedMemory() as memory:
            for number, run in enumerate(runs):
                command = [arguments.binary, "train", "--model", "gpt2", "--size", size, "--data", arguments.data, "--run", str(run),
                           "--device", "cuda", "--global-batch", str(batch * ranks), "--steps", str(STEPS), "--shuffle", "none", "--lr",
                           "1e-4", "--clip-norm", "1", "--report-every", "5", "--progress", "off", *extra]
                if ranks > 1:
                    command = ["mpirun", "-np", str(ranks), "--bind-to", "none", *command]
                variables = {**os.environ, "CUDA_VISIBLE_DEVICES": str(number)} if apart > 1 else None
                started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=variables))
            if any([process.wait() != 0 for process in started]):
                return {"error": "lockstep failed"}
        reports = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs]
    reports = [[line for line in lines if line["step"] % 5 == 0] for lines in reports]   # skipped steps are reported beside these
    # Not the last report, so that figures compare with those taken when it was too short (perf/README.md).
    seconds = max(statistics.mean(line["step_seconds"] for line in lines[-5:-1]) for lines in reports)
    lines = reports[0]
    return {"step_ms": round(seconds * 1e3, 3), "tokens_per_second_per_gpu": round(batch * LENGTH / seconds),
            "peak_reserved_gib": round(lines[-1]["memory_bytes"] / 2**30, 2), "used_gib": round(memory.peak, 2),
            "losses": [line["loss"] for line in lines], "mfu": lines[-2].get("mfu"),
            "data_wait_ms": round(1e3 * statistics.median(line["data_wait_seconds"] for line in lines[-5:]), 3)}


OURS = {"ours": {}, "ours-tf32": {"extra": ("--precision", "tf32")}, "ours-bf16": {"extra": ("--precision", "bf16")},
        "ours-recompute": {"extra": ("--recompute",)}, "ours-overlap": {"extra": ("--overlap", "on")},
        "ours-one": {"ranks": 1}, "ours-apart": {"ranks": 1, "apart": True}}


def peer(arguments, mode, size, batch):
    command = [sys.executable, str(PEERS), mode, size, str(batch), arguments.data, str(STEPS)]
    if arguments.ranks > 1:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(arguments.ranks), *command[1:]]
    with UsedMemory() as memory:
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]   # the last line of a CUDA error is advice
        return {"error": next((line for line in reversed(lines) if "Error:" in line), lines[-1])[:300]}
    result = json.loads(done.stdout.strip().splitlines()[-1])
    losses = result.pop("losses")
    result["losses"] = losses[4::5]   # of the steps that ours reports
    result["used_gib"] = round(memory.peak, 2)
    return result


def check_rows(arguments, batch):
    """All sides must see whole batches only."""
    import h5py
    rows = 0
    for path in pathlib.Path(arguments.data).glob("*.h5"):
        with h5py.File(path) as file:
            rows += file["tokens"].shape[0]
    if rows < STEPS * batch * arguments.ranks:
        raise SystemExit(f"{arguments.data} has {rows} rows, {STEPS} steps of {batch * arguments.ranks} need "
                         f"{STEPS * batch * arguments.ranks}; take a longer text")


def measure(arguments, size, batch, modes):
    check_rows(arguments, batch)
    rows = {}
    for mode in modes.split("+") * arguments.rounds:
        if mode in OURS:
            change = {"ranks": arguments.ranks, **OURS[mode]}
            change["apart"] = arguments.ranks if change.get("apart") else 1
            result = ours(arguments, size, batch, **change)
        else:
            result = peer(arguments, mode, size, batch)
        rows.setdefault(mode, []).append(result)
        print(f"  {size} batch {batch} {mode:15s} {result.get('tokens_per_second_per_gpu', 0):9,.0f} tokens/s "
              f"{result.get('step_ms', 0):9.3f} ms  {result.get('used_gib', 0):6.2f} GiB in use  {result.get('error', '')}",
              flush=True)
    return rows


def check(rows):
    """Losses fall and agree; returns what is wrong."""
    wrong = []
    last = {}
    for mode, results in rows.items():
        for result in results:
            if "error" in result:
                continue
            if mode not in ("ours-one", "ours-apart"):   # which see other rows than N ranks together
                last[mode] = result["losses"][-1]
            if result["losses"][-1] > 0.9 * result["losses"][0]:
                wrong.append(f"{mode}: the loss does not fall, {result['losses'][0]:.3f} to {result['losses'][-1]:.3f}")
    if last and max(last.values()) > (1 + AGREE) * min(last.values()):
        wrong.append(f"last losses differ: {last}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--text")
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--runs", default="124m:64:ours+compile+expert,124m:4:ours+compile+graphs,350m:32:ours+compile,"
                                          "1.5b:8:ours+compile")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    if (arguments.data is None) == (arguments.text is None):
        parser.error("give one of --data and --text")
    scratch = tempfile.TemporaryDirectory()
    if arguments.text:
        arguments.data = write_words(arguments.text, scratch.name)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "8")
    version = subprocess.run([arguments.binary, "--version"], capture_output=True, text=True).stdout.strip()
    report = {"benchmark": "gpt2", "lockstep": version, "ranks": arguments.ranks, "steps": STEPS, "length": 1024, "runs": []}
    good = True
    for run in arguments.runs.split(","):
        size, batch, modes = run.split(":")
        rows = measure(arguments, size, int(batch), modes)
        wrong = check(rows)
        good = good and not wrong
        for line in wrong:
            print(f"  REFUSED {run}: {line}")
        rates = {mode: statistics.median(r["tokens_per_second_per_gpu"] for r in results if "error" not in r)
                 for mode, results in rows.items() if any("error" not in r for r in results)}
        ratios = {mode: round(rates["ours"] / rate, 3) for mode, rate in rates.items() if mode != "ours" and "ours" in rates}
        report["runs"].append({"size": size, "batch": int(batch), "tokens_per_second_per_gpu": rates, "ours_over": ratios,
                               "wrong": wrong, "results": rows})
        print(f"{size} batch {batch}: ours over " + ", ".join(f"{mode} {ratio}" for mode, ratio in ratios.items()), flush=True)
        if arguments.output:
            pathlib.Path(arguments.output).write_text(json.dumps(report, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
