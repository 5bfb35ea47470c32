#!/usr/bin/env python3
"""GPT-2 in PyTorch on token shards, for comparison: perf/peers/gpt2.py MODE SIZE BATCH DATA STEPS [world through torchrun]

MODE  eager    autocast in FP16, GradScaler, fused AdamW
      compile  the same under torch.compile
      graphs   the same under torch.compile(mode="reduce-overhead"), which replays CUDA graphs
      expert   half weights with FP32 masters, compiled, the whole step in one CUDA graph: what PyTorch can do by hand
      tf32     eager in FP32 with TF32 products
Rows are taken in their stored order, as `lockstep train --shuffle none` does; initial weights are drawn from the same
distributions. Prints one JSON line: tokens per second of the last 25 steps, peak memory, the loss of every step.
"""
import json
import os
import pathlib
import sys
import time

import h5py
import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

SIZES = {"124m": (12, 768, 12), "350m": (24, 1024, 16), "774m": (36, 1280, 20), "1.5b": (48, 1600, 25)}
TIMED = 25
LR, CLIP, DECAY = 1e-4, 1.0, 0.01


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        padded = (vocabulary + 127) // 128 * 128
        self.wte, self.wpe = nn.Embedding(padded, width), nn.Embedding(max(length, 1024), width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(width)
        self.classes = None   # set it to leave padding out of the softmax: slower, and without effect where the padding is small
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
                continue
            adds = name.endswith(("proj.weight", "out.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if adds else 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.size(1)]
        for block in self.h:
            x = block(x)
        logits = F.linear(self.lnf(x), self.wte.weight)[..., : self.classes]
        # In FP32: half log-probabilities keep their count of tokens in half, which overflows at 65,520.
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)).float(), targets.view(-1))


def batches(folder, batch, steps, rank, world, device):
    rows = []
    for path in sorted(pathlib.Path(folder).glob("*.h5")):
        with h5py.File(path) as file:
            rows.append(file["tokens"][: batch * world * steps].astype(numpy.int64))
            vocabulary = int(file.attrs["vocabulary"])
    rows = numpy.concatenate(rows)
    order = numpy.arange(batch * world * steps) % (len(rows) // (batch * world) * (batch * world))
    chosen = torch.from_numpy(rows[order]).to(device).view(steps, world, batch, -1)[:, rank]
    return chosen[:, :, :-1].contiguous(), chosen[:, :, 1:].contiguous(), vocabulary


def groups(model):
    return [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
            {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]


def automatic(model, mode, device, world):
    """A step under autocast and GradScaler."""
    net = model
    if world > 1:
        net = nn.parallel.DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    if mode == "compile":
        net = torch.compile(net)
    elif mode == "graphs":
        net = torch.compile(net, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(groups(model), lr=LR, fused=True)
    half = mode != "tf32"
    scaler = torch.amp.GradScaler("cuda", enabled=half)

    def step(tokens, targets):
        with torch.autocast("cuda", dtype=torch.float16, enabled=half):
            loss = net(tokens, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


def expert(model, sample):
    """Half weights, FP32 masters, one graph."""
    model.half()
    params = list(model.parameters())
    masters = [p.detach().float().clone() for p in params]
    first, second = [torch.zeros_like(p) for p in masters], [torch.zeros_like(p) for p in masters]
    counts = [torch.zeros((), device="cuda") for _ in masters]
    scale = torch.full((), 65536.0, device="cuda")
    growth = torch.zeros((), dtype=torch.int32, device="cuda")
    net = torch.compile(model)
    matrices = [i for i, p in enumerate(params) if p.dim() >= 2]
    vectors = [i for i, p in enumerate(params) if p.dim() < 2]
    tokens, targets = (t.clone() for t in sample)
    seen = torch.zeros((), device="cuda")   # the loss; its own tensor's memory may serve the backward pass

    def body():
        loss = net(tokens, targets)
        seen.copy_(loss.detach())
        (loss.float() * scale).backward()
        with torch.no_grad():
            found = torch.zeros((), device="cuda")
            grads = [p.grad.float() for p in params]
            torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.double().reciprocal().float())
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
            torch._foreach_mul_(grads, (CLIP / (norm + 1e-6)).clamp(max=1.0))
            torch._foreach_add_(counts, 1)
            for chosen, decay in ((matrices, DECAY), (vectors, 0.0)):
                pick = lambda values: [values[i] for i in chosen]
                torch._fused_adamw_(pick(masters), pick(grads), pick(first), pick(second), [], pick(counts), lr=LR, beta1=0.9,
                                    beta2=0.999, weight_decay=decay, eps=1e-8, amsgrad=False, maximize=False,
                                    grad_scale=None, found_inf=found)
            torch._foreach_sub_(counts, [found] * len(counts))   # a skipped step does not count
            torch._foreach_copy_(params, masters)
            torch._amp_update_scale_(scale, growth, found, 2.0, 0.5, 2000)
        for p in params:
            p.grad = None

    # Detached: a clone with a history would keep each AccumulateGrad node on this stream, which breaks the capture. On the
    # host, so that it does not count as this side's memory.
    state = [t.detach().cpu() for t in (*params, *masters, *first, *second, *counts, scale, growth)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            body()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    with torch.no_grad():   # warming up and capturing trained a little: begin again
        for now, before in zip((*params, *masters, *first, *second, *counts, scale, growth), state):
            now.copy_(before)
    del state

    def step(new_tokens, new_targets):
        tokens.copy_(new_tokens)
        targets.copy_(new_targets)
        graph.replay()
        return seen.clone()
    step.keeps = (net, masters, first, second, counts, scale, growth)   # the graph has only their addresses
    return step


def main():
    mode, size, batch, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    world, rank, local = (int(os.environ.get(name, default)) for name, default in
                          (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_RANK", 0)))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    tokens, targets, vocabulary = batches(folder, batch, steps, rank, world, device)
    if mode not in ("eager", "compile", "graphs", "expert", "tf32") or (mode == "expert" and world > 1):
        raise SystemExit(f"mode {mode} at {world} ranks is not known here")
    layers, width, heads = SIZES[size]
    model = Gpt2(layers, width, heads, tokens.size(2), vocabulary).to(device)
    torch.cuda.reset_peak_memory_stats()
    step = expert(model, (tokens[0], targets[0])) if mode == "expert" else automatic(model, mode, device, world)
    losses, begin = [], None
    for number in range(steps):
        if number == steps - TIMED:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        losses.append(step(tokens[number], targets[number]).clone())
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / TIMED
    mean = torch.stack(losses)
    if world > 1:
        dist.all_reduce(mean)
        mean /= world
    if rank == 0:
        print(json.dumps({"mode": mode, "size": size, "batch": batch, "world": world, "step_ms": round(seconds * 1e3, 3),
                          "tokens_per_second_per_gpu": round(batch * tokens.size(2) / seconds),
                          "peak_allocated_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                          "peak_reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
                          "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                          "losses": [round(x, 4) for x in mean.tolist()]}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
