#!/usr/bin/env python3
"""perf/collect.py: GPT-2's figures of perf/README.md and every check that needs a GPU, in one call, on programs that are built.

    perf/collect.py PROGRAMS TEXT OUTPUT [--parts scaling,speed,...] [--minutes 60] [--speed RUNS] [--scaling PARTS]

PROGRAMS is a folder such as build/release/bin, with `launch/build all epilogues all_reduce kernel_times` in it; TEXT 40 MB of a
language, plain or gzip. OUTPUT gets PART.log of each part and PART.json of those that measure. Parts:

two_gpus    the tests of tests/gpu that need two
scaling     perf/scaling.py on all GPUs
speed       perf/gpt2.py: 124m, 350m and 1.5b beside PyTorch
budget      the kernels of a step of 124m at batch 64, by kernel_times
epilogues   products with their epilogues beside and inside
kernels, gpt2, train, curve, memcheck, racecheck   the parts of tests/gpu/run

The first two have all GPUs, and are left out where there is one. Then, of several GPUs, `speed`, `budget` and `epilogues` go one
after the other on the first, the others on the second. After --minutes what still runs is ended, and what did not begin is left
out; the files hold what was measured until then. Ends with a line a part; exit code 1 unless all passed.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "perf"))
import gpt2  # noqa: E402

TOGETHER = ("two_gpus", "scaling")
CHECKS = ("kernels", "gpt2", "train", "curve", "memcheck", "racecheck")
ALONE = ("speed", "budget", "epilogues")   # these want a GPU whose times nothing else disturbs
SPEED = "350m:32:ours+compile,124m:64:ours+compile+expert,124m:4:ours+compile+graphs,1.5b:8:ours+compile,124m:64:ours+ours-tf32"
SIZES = ("65536 768", "32768 1024", "4096 768", "8192 1600")   # of epilogues: rows, width


class Collector:
    def __init__(self, arguments):
        self.programs, self.output = pathlib.Path(arguments.programs).resolve(), pathlib.Path(arguments.output).resolve()
        self.output.mkdir(parents=True, exist_ok=True)
        self.arguments = arguments
        self.end = time.monotonic() + 60 * arguments.minutes
        self.results = {}

    def commands(self, part):
        """What a part runs, one after the other: [(words, more variables)]."""
        binary, text, out = self.programs / "lockstep", self.arguments.text, self.output
        if part in CHECKS or part == "two_gpus":
            return [([ROOT / "tests/gpu/run", self.programs, part], {"TEXT": text})]
        script = lambda name, *more: [sys.executable, ROOT / f"perf/{name}.py", "--text", text, "--binary", binary, "--output",
                                      out / f"{part}.json", *more]
        if part == "scaling":
            return [(script("scaling", "--peers", "--parts", self.arguments.scaling), {})]
        if part == "speed":
            return [(script("gpt2", "--runs", self.arguments.speed), {})]
        if part == "epilogues":
            return [([self.programs / "epilogues", *size.split()], {}) for size in SIZES]
        train = lambda run, steps: [binary, "train", "--model", "gpt2", "--size", "124m", "--data", self.data, "--run", self.scratch / run,
                                    "--device", "cuda", "--global-batch", "64", "--steps", steps, "--progress", "off"]
        return [(train("first", 5), {}),   # fills the cache of algorithms, whose timing is not to be counted
                (train("timed", 200), {"CUDA_INJECTION64_PATH": self.programs / "libkernel_times.so", "KERNEL_TIMES_STEPS": "200",
                                       "KERNEL_TIMES": out / "budget.json"})]

    def run(self, part, variables):
        started, code = time.monotonic(), 0
        with open(self.output / f"{part}.log", "w") as log:
            for words, more in self.commands(part):
                process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                                           env={**os.environ, **variables, **{name: str(value) for name, value in more.items()}})
                try:
                    code = process.wait(max(0, self.end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    code = "no time was left"
                if code != 0:
                    break
        self.results[part] = (code, time.monotonic() - started)
        print(f"{part}: {'passed' if code == 0 else f'FAILED ({code})'} after {time.monotonic() - started:.0f} s", flush=True)

    def lane(self, parts, variables):
        for part in parts:
            if time.monotonic() < self.end:
                self.run(part, variables)

    def collect(self, parts, gpus):
        with tempfile.TemporaryDirectory() as scratch:
            self.scratch = pathlib.Path(scratch)
            self.data = self.scratch / "data"
            if "budget" in parts:
                self.data.mkdir()
                gpt2.write_words(self.arguments.text, self.data)
            self.lane([part for part in parts if part in TOGETHER], {})
            rest = [part for part in parts if part not in TOGETHER]
            if gpus == 1:
                self.lane(rest, {})
            else:
                lanes = [([part for part in rest if (part in ALONE) == (gpu == 0)], {"CUDA_VISIBLE_DEVICES": str(gpu)}) for gpu in (0, 1)]
                threads = [threading.Thread(target=self.lane, args=lane) for lane in lanes]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs")
    parser.add_argument("text")
    parser.add_argument("output")
    parser.add_argument("--parts", default=",".join((*TOGETHER, *ALONE, *CHECKS)))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--speed", default=SPEED, help="--runs of perf/gpt2.py")
    parser.add_argument("--scaling", default="weak,strong,reduction,all_reduce,equality", help="--parts of perf/scaling.py")
    arguments = parser.parse_args()
    arguments.text = str(pathlib.Path(arguments.text).resolve())
    parts = arguments.parts.split(",")
    unknown = set(parts) - {*TOGETHER, *ALONE, *CHECKS}
    if unknown:
        parser.error(f"no such parts: {', '.join(sorted(unknown))}")
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
    if gpus == 0:
        raise SystemExit("nvidia-smi lists no GPU; these figures and checks need one")
    if gpus == 1:
        parts = [part for part in parts if part not in TOGETHER]
    os.environ.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHONUNBUFFERED": "1"})
    collector = Collector(arguments)
    collector.collect(parts, gpus)
    for part in parts:
        code, seconds = collector.results.get(part, ("not begun", 0))
        print(f"{part:10s} {'passed' if code == 0 else f'FAILED: {code}':28s} {seconds:6.0f} s")
    return 0 if all(collector.results.get(part, (1,))[0] == 0 for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
