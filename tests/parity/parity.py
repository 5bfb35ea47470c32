"""Lockstep against the Python torch of the same wheel.

parity.py networks PROGRAM TORCH    every loss of 20 steps in FP32, for networks, optimizers, clipping and decay
parity.py scaler PROGRAM TORCH      the loss scale after each of 5,000 steps, equal to GradScaler's
TORCH is the folder of the LibTorch that PROGRAM is linked with. Exits 77 where this Python has no torch there.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
try:
    import torch
    from torch import nn
except ImportError:
    print("this Python has no torch: not run")
    sys.exit(77)

STEPS = 5000
LOSS_BOUND = 1e-5


def read_raw(path, dtype):
    data = bytearray(pathlib.Path(path).read_bytes())
    return torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)


class LeNet(nn.Module):
    def __init__(self, case):
        super().__init__()
        channels, height, width = case["input_shape"]
        flat = 32 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        self.conv1 = nn.Conv2d(channels, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 5)
        self.fc1 = nn.Linear(flat, 120)
        self.fc2 = nn.Linear(120, 84)
        self.head = nn.Linear(84, case["classes"])

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.head(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Mlp(nn.Module):
    def __init__(self, case):
        super().__init__()
        inputs = torch.Size(case["input_shape"]).numel()
        self.first = nn.Linear(inputs, case["hidden"])
        self.second = nn.Linear(case["hidden"], case["hidden"])
        self.head = nn.Linear(case["hidden"], case["classes"])

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x.flatten(1))))))


def split_weights(case, flat):
    """The flat values as {name: tensor}."""
    weights, place = {}, 0
    for entry in case["weights"]:
        shape = torch.Size(entry["shape"])
        weights[entry["name"]] = flat[place:place + shape.numel()].view(shape)
        place += shape.numel()
    assert place == flat.numel(), "weights.f32 holds another number of values than its names tell"
    return weights


def make_optimizer(model, case):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": case["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    if case["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=case["lr"], momentum=case["momentum"])
    return torch.optim.AdamW(groups, lr=case["lr"], betas=case["betas"], eps=case["epsilon"])


def train(folder, case):
    """Losses, gradient norms and final weights of torch on what the case was trained on."""
    model = {"lenet": LeNet, "mlp": Mlp}[case["model"]](case)
    model.load_state_dict(split_weights(case, read_raw(folder / "weights.f32", torch.float32)), strict=True)
    optimizer = make_optimizer(model, case)
    inputs = read_raw(folder / "inputs.f32", torch.float32).view(-1, *case["input_shape"])
    targets = read_raw(folder / "targets.i64", torch.int64)
    assert len(inputs) == len(targets) == sum(case["rows"])
    losses, norms, first = [], [], 0
    for rows in case["rows"]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[first:first + rows]), targets[first:first + rows])
        loss.backward()
        limit = case["clip_norm"] if case["clip_norm"] > 0 else float("inf")
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
        losses.append(loss.item())
        first += rows
    final = torch.cat([p.detach().flatten() for p in model.parameters()])
    return losses, norms, final


def worst_relative(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def check_networks(program, folder):
    subprocess.run([program, "train", folder], check=True)
    cases = sorted(path.parent for path in pathlib.Path(folder).glob("*/case.json"))
    assert len(cases) == 20, f"{len(cases)} cases"
    failures = 0
    for path in cases:
        case = json.loads((path / "case.json").read_text())
        losses, norms, final = train(path, case)
        ours = read_raw(path / "losses.f32", torch.float32).tolist()
        loss = worst_relative(ours, losses)
        norm = worst_relative(read_raw(path / "norms.f32", torch.float32).tolist(), norms)
        weight = (read_raw(path / "final.f32", torch.float32) - final).abs().mean().item()
        clipped = sum(case["clip_norm"] > 0 and norm > case["clip_norm"] for norm in norms)
        moved = (final - read_raw(path / "weights.f32", torch.float32)).abs().max().item()
        good = len(ours) == 20 and loss <= LOSS_BOUND and norm <= 1e-4 and weight <= 1e-7 and moved > 1e-2
        good = good and (case["clip_norm"] == 0 or clipped > 0) and len(set(case["rows"])) > 1   # a short batch, too
        failures += not good
        print(f"{'' if good else 'FAILED '}{path.name}: {len(ours)} losses from {losses[0]:.4f} to {losses[-1]:.4f}, "
              f"relative difference {loss:.1e}, of norms {norm:.1e}, weights {weight:.1e}, {clipped} steps clipped")
    return failures


def patterns(interval):
    """name -> list of bytes: 0 clean, 1 an inf, 2 a NaN."""
    generator = random.Random(1)
    sparse = [generator.choice([1, 2]) if generator.random() < 0.002 else 0 for _ in range(STEPS)]
    frequent = [generator.choice([1, 2]) if generator.random() < 0.2 else 0 for _ in range(STEPS)]
    bursts = [0] * STEPS
    for start in range(37, STEPS, 411):
        for step in range(start, min(STEPS, start + generator.randrange(1, 40))):
            bursts[step] = 1
    before_growth = [0] * STEPS   # an overflow on the step that would grow, then just after one that did
    for start in range(0, STEPS, 2 * interval + 1):
        for step, kind in ((start + interval - 1, 1), (start + 2 * interval, 2)):
            if step < STEPS:
                before_growth[step] = kind
    return {"clean": [0] * STEPS, "sparse": sparse, "frequent": frequent, "bursts": bursts,
            "before growth": before_growth, "always": [1] * STEPS}


def grad_scaler_sequence(pattern, init, growth, backoff, interval):
    scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_factor=growth, backoff_factor=backoff,
                                  growth_interval=interval)
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale(torch.zeros(()))   # makes the scale's tensor
    planted = {0: 1.0, 1: float("inf"), 2: float("nan")}
    scales = []
    for step, kind in enumerate(pattern):
        weight.grad = torch.ones(3)
        weight.grad[step % 3] = planted[kind]
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def check_scaler(program, folder):
    failures = 0
    largest = 2.0 ** 127
    settings = [(65536.0, 2.0, 0.5, 2000, None), (65536.0, 2.0, 0.5, 7, None), (1.0, 2.0, 0.5, 1, ["frequent"]),
                (largest, 2.0, 0.5, 5, ["clean", "sparse"]), (3.0e38, 1.5, 0.7, 3, ["clean", "frequent"]),
                (65536.0, 1.1, 0.9, 11, ["sparse", "bursts"])]
    for init, growth, backoff, interval, names in settings:
        for name, pattern in patterns(interval).items():
            if names is not None and name not in names:
                continue
            pattern_path, output = os.path.join(folder, "pattern"), os.path.join(folder, "scales")
            pathlib.Path(pattern_path).write_bytes(bytes(pattern))
            subprocess.run([program, "scale", repr(init), repr(growth), repr(backoff), str(interval), pattern_path,
                            output], check=True)
            ours = read_raw(output, torch.float32).tolist()
            theirs = grad_scaler_sequence(pattern, init, growth, backoff, interval)
            differ = [step for step in range(STEPS) if ours[step] != theirs[step]] if len(ours) == STEPS else [-1]
            failures += bool(differ)
            print(f"{'FAILED ' if differ else ''}{name}: {sum(map(bool, pattern))} overflows, scale {init:g} x{growth} "
                  f"after {interval}, x{backoff}: {len(set(theirs))} values, last {theirs[-1]:g}"
                  + (f"; step {differ[0]}: ours {ours[differ[0]]!r}, torch {theirs[differ[0]]!r}" if differ else ""))
    return failures


def main():
    part, program, torch_folder = sys.argv[1:]
    if os.path.realpath(os.path.dirname(torch.__file__)) != os.path.realpath(torch_folder):
        print(f"this Python's torch is {os.path.dirname(torch.__file__)}, lockstep is linked with {torch_folder}: not run")
        return 77
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        failures = {"networks": check_networks, "scaler": check_scaler}[part](program, folder)
    print(f"{failures} failed" if failures else "all alike")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
