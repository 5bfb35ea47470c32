#!/usr/bin/env python3
"""perf/scaling.py: how `lockstep train --model gpt2` scales over the GPUs of one host, in one call.

    perf/scaling.py (--data TOKENS | --text FILE) [--binary build/release/bin/lockstep] [--counts 1,2,4,8] [--output FILE]
                    [--parts weak,strong,reduction,all_reduce,equality] [--runs 124m:64,124m:4,350m:32] [--peers] [--cpu]

weak        tokens per second of each count, with the batch of --runs on each GPU; beside it the same number of runs of one GPU at
            once (the step without reduction, on a machine as warm), and with --peers compiled DDP
strong      124m with a global batch of 512 rows, in micro-batches of 64
reduction   the first of --runs at the largest count with --overlap off and on, other bucket sizes and other numbers of NCCL channels
all_reduce  sums of half alone, by size (perf/all_reduce.cpp)
equality    200 steps of one global batch at each count: losses within 5e-3 of one GPU's for 50 steps, loss scales the same, and every
            rank's weights and moments the same bits at the end (--check-replicas)
--cpu does all of it with a tiny model on rows of 64 tokens and CPU ranks, to try the script. Prints a line a run and one JSON line; exit code 1 when a check
fails. perf/README.md states the formulas. Needs what perf/gpt2.py needs.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpt2  # noqa: E402

TINY = ("--layers", "2", "--width", "32", "--heads", "4", "--context", "64")
STEPS = 45
BOUND, COMPARED = 5e-3, 50   # runs that differ in rounding only part sooner or later


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.wrong = []
        self.report = {"benchmark": "scaling", "cpu": arguments.cpu, "counts": arguments.counts}

    def command(self, ranks, folder, size, global_batch, steps, *extra):
        every = () if "--report-every" in extra else ("--report-every", "5")
        device = ("--device", "cpu", *TINY) if self.arguments.cpu else ("--device", "cuda", "--size", size)
        words = [self.arguments.binary, "train", "--model", "gpt2", *device, "--data", self.arguments.data, "--run", str(folder),
                 "--global-batch", str(global_batch), "--steps", str(steps), "--schedule-steps", "1000", "--shuffle", "none",
                 "--lr", "1e-4", "--clip-norm", "1", "--progress", "off", *every, *extra]
        return ["mpirun", "-np", str(ranks), "--bind-to", "none", *words]

    def train(self, ranks, size, global_batch, steps=STEPS, *extra, apart=1, variables=None):
        """Reports of one run; with `apart` those of the slowest of as many runs at once."""
        with tempfile.TemporaryDirectory() as folder:
            runs, started = [pathlib.Path(folder) / f"run-{n}" for n in range(apart)], []
            for number, run in enumerate(runs):
                own = dict(os.environ, **(variables or {}))
                if apart > 1 and not self.arguments.cpu:
                    own["CUDA_VISIBLE_DEVICES"] = str(number)
                started.append(subprocess.Popen(self.command(ranks, run, size, global_batch, steps, *extra), env=own,
                                                stdout=subprocess.DEVNULL))
            if any([process.wait() != 0 for process in started]):
                raise SystemExit(f"lockstep failed: {' '.join(self.command(ranks, runs[0], size, global_batch, steps, *extra))}")
            all_lines = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs]
        if "--report-every" not in extra:   # skipped steps are reported beside these
            all_lines = [[line for line in lines if line["step"] % 5 == 0] for lines in all_lines]
        return max(all_lines, key=self.step_seconds)

    @staticmethod
    def step_seconds(lines):
        """Mean of the second half, without the last report (perf/README.md says why)."""
        return statistics.mean(line["step_seconds"] for line in lines[len(lines) // 2:-1])

    def row(self, part, name, ranks, lines, tokens_of_a_step):
        seconds = self.step_seconds(lines)
        row = {"name": name, "ranks": ranks, "step_ms": round(seconds * 1e3, 3),
               "tokens_per_second_per_gpu": round(tokens_of_a_step / seconds / ranks)}
        self.report.setdefault(part, []).append(row)
        print(f"{part:10s} {name:34s} {ranks:2d} ranks  {row['step_ms']:10.3f} ms  {row['tokens_per_second_per_gpu']:9,d} tokens/s/GPU",
              flush=True)
        return row

    def weak(self):
        for run in self.arguments.runs:
            size, batch = run.split(":")
            batch = int(batch)
            alone = None
            for count in self.arguments.counts:
                tokens = batch * count * gpt2.LENGTH
                row = self.row("weak", run, count, self.train(count, size, batch * count), tokens)
                alone = alone or row["tokens_per_second_per_gpu"]
                row["of_one"] = round(row["tokens_per_second_per_gpu"] / alone, 4)
                if count > 1:
                    apart = self.row("weak", f"{run} apart", count, self.train(1, size, batch, apart=count), tokens)
                    row["of_apart"] = round(row["tokens_per_second_per_gpu"] / apart["tokens_per_second_per_gpu"], 4)
                    print(f"           {count} GPUs: {100 * row['of_one']:.1f} % of one, {100 * row['of_apart']:.1f} % of {count} apart")
                if self.arguments.peers and not self.arguments.cpu:
                    arguments = argparse.Namespace(ranks=count, data=self.arguments.data)
                    theirs = gpt2.peer(arguments, "compile", size, batch)
                    theirs.pop("losses", None)
                    self.report["weak"].append({"name": f"{run} compiled DDP", "ranks": count, **theirs})
                    print(f"weak       {run} compiled DDP {theirs.get('tokens_per_second_per_gpu', theirs.get('error'))}", flush=True)

    def strong(self):
        batch, micro = (32, 8) if self.arguments.cpu else (512, 64)
        for count in self.arguments.counts:
            if batch % (count * micro):
                continue
            lines = self.train(count, "124m", batch, 30, "--micro-batch", str(micro))
            self.row("strong", f"{'tiny' if self.arguments.cpu else '124m'}, global batch {batch}", count, lines, batch * gpt2.LENGTH)

    def reduction(self):
        size, batch = self.arguments.runs[0].split(":")
        count, batch = self.arguments.counts[-1], int(batch)
        beside = lambda *more: ("--overlap", "on", *more)
        buckets = lambda first, others: beside("--first-bucket-bytes", str(first), "--bucket-bytes", str(others))
        blocks = lambda least, most: {"NCCL_MIN_CTAS": str(least), "NCCL_MAX_CTAS": str(most)}   # these go before the program's own
        trials = {"as it is": ((), {}), "as it is, NCCL's own blocks": ((), blocks(1, 32)), "as it is, 16 blocks": ((), blocks(16, 16)),
                  "as it is, 32 by NCCL_SYM_CTAS": ((), {"NCCL_SYM_CTAS": "32"}),
                  "after the backward pass, in buckets": (("--overlap", "off"), {}),
                  "beside it": (beside(), {}), "beside it, 128 MiB buckets": (beside("--bucket-bytes", "128MiB"), {}),
                  # In 124M these edges fall where attention's backward pass, which has many small blocks, comes next.
                  "beside it, three before attention": (buckets(10_000_000, 155_000_000), {}),
                  "beside it, at most 8 channels": (beside("--max-channels", "8"), {})}
        for name, (extra, variables) in trials.items():
            lines = self.train(count, size, batch * count, STEPS, *extra, variables=variables)
            self.row("reduction", name, count, lines, batch * count * gpt2.LENGTH)

    def all_reduce(self):
        program = pathlib.Path(self.arguments.binary).resolve().parent / "all_reduce"
        # 32 blocks are what a run on one host asks for (docs/adr/0012-reduction-after-the-backward-pass.md).
        for count, blocks in itertools.product(self.arguments.counts[1:], ("",) if self.arguments.cpu else ("", "32")):
            command = ["mpirun", "-np", str(count), "--bind-to", "none", str(program), *(("cpu",) if self.arguments.cpu else ())]
            done = subprocess.run(command, capture_output=True, text=True,
                                  env={**os.environ, **({"NCCL_MIN_CTAS": blocks, "NCCL_MAX_CTAS": blocks} if blocks else {})})
            print(done.stdout, end="", flush=True)
            self.report.setdefault("all_reduce", []).extend({**json.loads(line), "blocks": blocks} for line in done.stdout.splitlines())
            if done.returncode != 0:
                self.wrong.append(f"all_reduce at {count} ranks: {done.stderr.strip()[-200:] or 'a sum is wrong'}")

    def equality(self):
        batch, steps = (8, 20) if self.arguments.cpu else (64, 200)
        first = None
        for count in self.arguments.counts:
            lines = self.train(count, "124m", batch, steps, "--check-replicas", "--growth-interval", "20", "--report-every", "1")
            losses = [line["loss"] for line in lines if line["step"] <= COMPARED]
            scales = [line["loss_scale"] for line in lines]
            first = first or (losses, scales)
            apart = max(abs(a - b) / max(a, b) for a, b in zip(losses, first[0]))
            good = apart <= BOUND and scales == first[1]
            self.report.setdefault("equality", []).append({"ranks": count, "largest_difference": apart, "scales_alike": scales == first[1],
                                                           "replicas_alike": True})   # else lockstep had failed
            print(f"equality   {count} ranks: losses differ by {apart:.1e} at most, scales {'alike' if scales == first[1] else 'DIFFER'}, "
                  "replicas the same bits", flush=True)
            if not good:
                self.wrong.append(f"equality at {count} ranks: {apart:.1e}, scales alike {scales == first[1]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--text")
    parser.add_argument("--binary", default=str(gpt2.ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--counts", default="")
    parser.add_argument("--parts", default="weak,strong,reduction,all_reduce,equality")
    parser.add_argument("--runs", default="124m:64,124m:4,350m:32")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    if (arguments.data is None) == (arguments.text is None):
        parser.error("give one of --data and --text")
    if not arguments.counts:
        gpus = 2 if arguments.cpu else subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
        arguments.counts = ",".join(str(n) for n in (1, 2, 4, 8) if n <= gpus)
    arguments.counts = [int(n) for n in arguments.counts.split(",")]
    arguments.runs = ["tiny:4"] if arguments.cpu else arguments.runs.split(",")
    scratch = tempfile.TemporaryDirectory()
    if arguments.cpu:
        gpt2.LENGTH, gpt2.VOCABULARY = 64, 512
    if arguments.text:
        arguments.data = gpt2.write_words(arguments.text, scratch.name)
    bench = Bench(arguments)
    for part in arguments.parts.split(","):
        getattr(bench, part)()
        bench.report["wrong"] = bench.wrong
        if arguments.output:
            pathlib.Path(arguments.output).write_text(json.dumps(bench.report, indent=1) + "\n")
    print(json.dumps(bench.report))
    for line in bench.wrong:
        print(f"WRONG: {line}")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
