"""Runs the real program under mpirun, for tests in plain Python: no package beyond the standard library.

LOCKSTEP_BINARY names the program (ctest sets it; otherwise that of build/release). Every process gets a time limit, every
test a temporary folder that goes when the test ends.
"""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("LOCKSTEP_BINARY", ROOT / "build/release/bin/lockstep"))
TIME_LIMIT_SECONDS = 120

# What a test run must not inherit from the shell that started it, and what every rank gets.
FOREIGN = ("SLURM_", "PMI_", "PMIX_", "OMPI_COMM_", "LOCKSTEP_TERMINAL")
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}

# What a report says about training itself, not about the machine it ran on.
LEARNING = ("step", "epoch", "loss", "lr", "loss_scale", "skipped_steps", "grad_norm", "samples")


class Result:
    def __init__(self, command, code, output, errors):
        self.command, self.code, self.output, self.errors = command, code, output, errors

    def __str__(self):
        return f"{' '.join(map(str, self.command))}\nexit code {self.code}\n{self.output}{self.errors}"


def environment(**changes):
    """The variables of a rank; a change of None removes one."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    variables.update(SETTINGS)
    variables.update(changes)
    return {name: value for name, value in variables.items() if value is not None}


def start(command, variables=None):
    return subprocess.Popen([str(word) for word in command], env=variables or environment(), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait(process, seconds=TIME_LIMIT_SECONDS):
    """The result of a started process. One that takes too long is ended, mpirun so that it takes its ranks along."""
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            output, errors = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
        raise AssertionError(f"not done within {seconds} s: {' '.join(process.args)}\n{output}{errors}") from None
    return Result(process.args, process.returncode, output, errors)


def run(command, variables=None, seconds=TIME_LIMIT_SECONDS):
    return wait(start(command, variables), seconds)


def on_ranks(ranks, *words):
    return ["mpirun", "--quiet", "-np", ranks, BINARY, *words]


def flags(settings):
    """{'global_batch': 8, 'check_replicas': False} is --global-batch 8 --no-check-replicas; None leaves a flag out."""
    words = []
    for name, value in settings.items():
        name = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words.append(f"--{name}={value}")
    return words


def digests(folder):
    """Everything below a folder: path -> checksum, or 'folder'."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Run:
    """What a training run left in its folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def lines(self):
        path = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def reports(self):
        return [{name: line[name] for name in LEARNING} for line in self.lines() if "eval_loss" not in line]

    def evaluations(self):
        return [line for line in self.lines() if "eval_loss" in line]

    def column(self, name):
        return [report[name] for report in self.reports()]

    def checkpoints(self):
        return sorted((self.folder / "checkpoints").glob("step-*"))

    def shards(self):
        """Checksums of the newest checkpoint's shards, which hold masters and moments and no times."""
        newest = self.checkpoints()[-1]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in newest.glob("shard-*.h5")}

    def state(self, step=None):
        folder = self.checkpoints()[-1] if step is None else self.folder / f"checkpoints/step-{step:010d}"
        return json.loads((folder / "state.json").read_text())


def write_csv(path, rows, side=12, classes=4, seed=7, label=None):
    """Noisy pictures of `classes` patterns: learnable in some tens of steps. `label` gives all rows that label."""
    draw = random.Random(seed)
    patterns = [[draw.randrange(160) for _ in range(side * side)] for _ in range(classes)]
    with open(path, "w") as file:
        for row in range(rows):
            noisy = (min(255, value + draw.randrange(96)) for value in patterns[row % classes])
            file.write(",".join(map(str, noisy)) + f",{row % classes if label is None else label}\n")


class LockstepTest(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    @classmethod
    def pack(cls, name, rows, side=12, shards=1, **settings):
        """A packed data set in the folder that the tests of a class share."""
        output = cls.shared / name
        csv_settings = {key: settings.pop(key) for key in ("seed", "label", "patterns") if key in settings}
        if "patterns" in csv_settings:
            csv_settings["classes"] = csv_settings.pop("patterns")
        write_csv(cls.shared / f"{name}.csv", rows, side, **csv_settings)
        result = run([BINARY, "pack", "csv", *flags({"input": cls.shared / f"{name}.csv", "shape": f"1x{side}x{side}",
                                                    "output": output, "shards": shards, **settings})])
        if result.code != 0:
            raise AssertionError(str(result))
        return output

    def settings(self, **changes):
        return {"model": "mlp", "hidden": 16, "device": "cpu", "report_every": 1, "progress": "off", **changes}

    def train(self, ranks, name, expect=0, **changes):
        """Trains in the folder `name` of this test, on `ranks` ranks, and returns what it left."""
        result = run(on_ranks(ranks, "train", *flags(self.settings(run=self.folder / name, **changes))))
        self.assertEqual(result.code, expect, str(result))
        trained = Run(self.folder / name)
        steps = trained.column("step")
        self.assertEqual(steps, sorted(set(steps)), "a step is reported twice, or late")
        return trained

    def assert_close(self, left, right, relative):
        """Numbers in step, each within `relative` of the other."""
        self.assertEqual(len(left), len(right))
        for step, (a, b) in enumerate(zip(left, right), 1):
            if a is None or b is None:
                self.assertEqual(a, b, f"step {step}")
            else:
                self.assertLessEqual(abs(a - b), relative * max(abs(a), abs(b)), f"step {step}: {a} and {b}")

    def assert_refused(self, result, code, *words, at_start=True):
        """One line on standard error, once for all ranks, that holds `words`; at the start nothing else is printed."""
        self.assertEqual(result.code, code, str(result))
        lines = result.errors.splitlines()
        self.assertEqual(len(lines), 1, str(result))
        self.assertRegex(lines[0], r"^lockstep: error: \S", str(result))
        self.assertTrue(result.output == "" or not at_start, str(result))
        for word in words:
            self.assertIn(str(word), lines[0])


def main():
    if shutil.which("mpirun") is None:
        print("mpirun is not here")
        sys.exit(1)
    unittest.main(verbosity=2)
