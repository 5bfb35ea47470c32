"""Runs on real GPUs, as many as there are: captured steps, two GPUs against one, resume, and waits of the host.

Skipped where there is no GPU; fails instead with LOCKSTEP_REQUIRE_GPU=1. LOCKSTEP_WAITS_LIBRARY names count_waits.
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "end_to_end"))
import lockstep_run as lr  # noqa: E402
import waits  # noqa: E402


def gpu_count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return 0
    return listed.stdout.count("GPU ") if listed.returncode == 0 else 0


GPUS = gpu_count()


# Runs that differ in rounding only part exponentially: by 1e-5 within 40 steps at this rate in FP32, sooner at larger ones.
GENTLE = 1e-4
FP32_BOUND, FP16_BOUND = 1e-4, 5e-3


class GpuTest(lr.LockstepTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.pack("data", 1000, side=28, shards=2)
        cls.few = cls.pack("few", 150, side=28)

    def settings(self, **changes):
        return {"model": "lenet", "device": "cuda", "report_every": 1, "lr": GENTLE, "progress": "off", "data": self.data,
                "global_batch": 64, "steps": 40, "schedule_steps": 40, **changes}

    def needs(self, gpus):
        if GPUS < gpus:
            self.skipTest(f"{GPUS} GPUs here, {gpus} needed")

    def test_a_captured_step_is_bit_equal_to_one_run_op_by_op(self):
        for precision in ("fp16", "bf16", "fp32", "tf32"):
            on = self.train(1, f"{precision}-on", precision=precision, graph="on")
            off = self.train(1, f"{precision}-off", precision=precision, graph="off")
            self.assertEqual(on.reports(), off.reports(), precision)
            self.assertEqual(on.shards(), off.shards(), precision)

    def test_short_last_batches_and_accumulation_work_with_the_graph(self):
        on = self.train(1, "on", data=self.few, graph="on", micro_batch=16)       # 150 rows: 64, 64, 22
        off = self.train(1, "off", data=self.few, graph="off", micro_batch=16)
        self.assertEqual(on.reports(), off.reports())

    def test_the_loss_on_a_gpu_follows_the_cpu(self):
        gpu = self.train(1, "gpu", precision="fp32")
        cpu = self.train(1, "cpu", precision="fp32", device="cpu")
        self.assert_close(gpu.column("loss")[:20], cpu.column("loss")[:20], 2e-3)
        gpu = self.train(1, "gpu16", precision="fp16", steps=20)
        cpu = self.train(1, "cpu16", precision="fp16", device="cpu", steps=20)
        self.assert_close(gpu.column("loss"), cpu.column("loss"), 1e-2)

    def test_four_micro_batches_equal_one_large_one(self):
        for precision, bound in (("fp32", FP32_BOUND), ("fp16", FP16_BOUND)):
            many = self.train(1, f"{precision}-4", precision=precision, micro_batch=16, growth_interval=8)
            one = self.train(1, f"{precision}-1", precision=precision, growth_interval=8)
            self.assert_close(many.column("loss"), one.column("loss"), bound)
            self.assertEqual(many.column("loss_scale"), one.column("loss_scale"))

    def test_a_resumed_run_is_bit_equal_to_one_never_stopped(self):
        whole = self.train(1, "whole", init_scale=2.0**24, growth_interval=6)
        for stop in (1, 7, 16, 23):
            name = f"stopped-{stop}"
            self.train(1, name, init_scale=2.0**24, growth_interval=6, steps=stop)
            self.train(1, name, init_scale=2.0**24, growth_interval=6, steps=stop + 5)
            again = self.train(1, name, init_scale=2.0**24, growth_interval=6)
            self.assertEqual(again.reports(), whole.reports(), f"stopped after {stop}")
            self.assertEqual(again.shards(), whole.shards(), f"stopped after {stop}")

    def test_the_host_waits_for_the_device_in_no_step(self):
        counts = []
        for steps in (200, 400):
            command = [lr.BINARY, "train", *lr.flags(self.settings(run=self.folder / f"run-{steps}", steps=steps,
                                                                   schedule_steps=400, report_every=10))]
            counts.append(waits.counted(command, self.folder / f"waits-{steps}"))
        self.assertEqual(waits.of_steps(*counts), [])

    def test_more_ranks_than_gpus_are_refused(self):
        result = lr.run(lr.on_ranks(GPUS + 1, "train", *lr.flags(self.settings(run=self.folder / "run"))))
        if GPUS == 1:   # exactly one visible device a rank: found as two ranks on one GPU
            self.assert_refused(result, 78, "ranks 0 and 1", "GPU-")
        else:
            self.assert_refused(result, 78, f"{GPUS + 1} ranks", f"{GPUS} ")
        self.assertFalse((self.folder / "run").exists())

    def test_two_gpus_follow_one(self):
        self.needs(2)
        for precision, bound in (("fp32", FP32_BOUND), ("fp16", FP16_BOUND)):
            one = self.train(1, f"{precision}-1", precision=precision, growth_interval=8)
            two = self.train(2, f"{precision}-2", precision=precision, growth_interval=8)
            self.assert_close(two.column("loss")[:20], one.column("loss")[:20], bound)
            self.assertEqual(two.column("loss_scale"), one.column("loss_scale"))

    def test_two_gpus_graph_overlap_and_buckets_change_no_bit(self):
        self.needs(2)
        runs = [self.train(2, name, **changes) for name, changes in {
            "captured": {}, "op-by-op": {"graph": "off"}, "again": {},
            "beside": {"overlap": "on"}, "after": {"overlap": "off"}}.items()]
        for other in runs[1:]:
            self.assertEqual(other.reports(), runs[0].reports())
            self.assertEqual(other.shards(), runs[0].shards())

    def test_a_run_goes_on_from_two_gpus_to_one_and_to_cpu_ranks(self):
        self.needs(2)
        whole = self.train(2, "whole")
        self.train(2, "moved", steps=15)
        self.train(1, "moved", steps=25)
        moved = self.train(2, "moved", device="cpu")
        self.assert_close(moved.column("loss")[:25], whole.column("loss")[:25], 5e-3)


if __name__ == "__main__":
    if GPUS == 0:
        print("no GPU here: not run")
        sys.exit(1 if os.environ.get("LOCKSTEP_REQUIRE_GPU") == "1" else 77)  # ctest calls 77 skipped
    lr.main()
