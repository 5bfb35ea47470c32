#!/usr/bin/env python3
"""PyTorch eager AMP (FP16 autocast, GradScaler, fused AdamW) on the network of src/models/zoo/lenet.cpp, batch 64.

    lenet_eager.py DIGITS.csv.gz      784 pixels, then the label, a line

The whole data set lies on the GPU from the start, so no time goes into loading.
Prints one JSON line: median steps per second over blocks of 200 steps, and the last block's mean loss.
"""
import gzip
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 32, 5)
        self.fc1, self.fc2, self.head = nn.Linear(800, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.head(F.relu(self.fc2(F.relu(self.fc1(x)))))


def main():
    batch, blocks, block_steps = 64, 12, 200
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    with gzip.open(sys.argv[1], "rt") as file:
        rows = [list(map(float, line.split(","))) for line in file if line.strip()]
    table = torch.tensor(rows)[torch.randperm(len(rows))[:4000]].cuda()
    images, labels = table[:, :784].to(torch.uint8).view(-1, 1, 28, 28), table[:, 784].long()
    model = LeNet().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    rates, losses = [], []
    for block in range(blocks):
        torch.cuda.synchronize()
        start = time.perf_counter()
        total = torch.zeros((), device="cuda")
        for step in range(block_steps):
            first = (block * block_steps + step) % (len(images) // batch) * batch
            x, y = images[first:first + batch], labels[first:first + batch]
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model((x.float() / 255 - 0.5) / 0.25), y)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        torch.cuda.synchronize()
        rates.append(block_steps / (time.perf_counter() - start))
        losses.append(total.item() / block_steps)
    print(json.dumps({"system": "pytorch eager AMP", "version": torch.__version__, "batch": batch,
                      "steps_per_second": statistics.median(rates[2:]), "loss": losses[-1],
                      "device": torch.cuda.get_device_name()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
