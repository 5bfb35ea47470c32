"""GPT-2 on real GPUs: bits that must not differ, losses that must follow, memory, waits, and what does not fit.

Skipped where there is no GPU; fails instead with LOCKSTEP_REQUIRE_GPU=1. LOCKSTEP_WAITS_LIBRARY names count_waits.
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "end_to_end"))
import lockstep_run as lr  # noqa: E402
import waits  # noqa: E402
from gpu_test import GPUS  # noqa: E402
from text_test import write_text  # noqa: E402

LENGTH = 128
TINY = {"layers": 3, "width": 128, "heads": 4, "context": LENGTH}
FP16_BOUND = 5e-3


class Gpt2GpuTest(lr.LockstepTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_text(cls.shared / "text.txt", 60000)
        cls.data = cls.shared / "data"
        result = lr.run([lr.BINARY, "pack", "text", *lr.flags({"input": cls.shared / "text.txt", "output": cls.data,
                                                              "sequence_length": LENGTH})])
        assert result.code == 0, result

    def settings(self, **changes):
        return {"model": "gpt2", **TINY, "device": "cuda", "report_every": 1, "lr": 3e-4, "progress": "off", "data": self.data,
                "global_batch": 32, "steps": 30, "schedule_steps": 30, **changes}

    def needs(self, gpus):
        if GPUS < gpus:
            self.skipTest(f"{GPUS} GPUs here, {gpus} needed")

    def same(self, first, second, name):
        self.assertEqual(first.reports(), second.reports(), name)
        self.assertEqual(first.shards(), second.shards(), name)

    def test_a_captured_step_a_second_run_and_recomputation_change_no_bit(self):
        for precision in ("fp16", "bf16", "tf32"):
            first = self.train(1, f"{precision}-on", precision=precision, graph="on", micro_batch=16)
            for name, changes in {"off": {"graph": "off"}, "again": {}, "recompute": {"recompute": True}}.items():
                other = self.train(1, f"{precision}-{name}", precision=precision, micro_batch=16, **changes)
                self.same(first, other, f"{precision} {name}")

    def test_a_resumed_run_is_bit_equal_to_one_never_stopped(self):
        whole = self.train(1, "whole", init_scale=2.0**24, growth_interval=6)
        for stop in (1, 8, 17):
            name = f"stopped-{stop}"
            self.train(1, name, init_scale=2.0**24, growth_interval=6, steps=stop)
            self.same(self.train(1, name, init_scale=2.0**24, growth_interval=6), whole, f"stopped after {stop}")

    def test_fused_ops_reference_ops_and_cpu_ranks_give_one_loss_curve(self):
        fused = self.train(1, "fused", ops="fused")
        self.assert_close(self.train(1, "reference", ops="reference").column("loss"), fused.column("loss"), FP16_BOUND)
        self.assert_close(self.train(1, "fp32", precision="fp32").column("loss"), fused.column("loss"), FP16_BOUND)
        self.assert_close(self.train(1, "cpu", device="cpu", precision="fp32").column("loss"), fused.column("loss"), FP16_BOUND)
        refused = lr.run([lr.BINARY, "train", *lr.flags(self.settings(run=self.folder / "no", precision="fp32", ops="fused"))])
        self.assert_refused(refused, 64, "--ops fused", "--ops auto")

    def test_gradient_norms_are_in_true_units_and_clipping_acts_on_them(self):
        clipped = {"clip_norm": 0.5, "steps": 20}
        half, full = self.train(1, "fp16", **clipped), self.train(1, "fp32", precision="fp32", **clipped)
        self.assert_close(half.column("grad_norm"), full.column("grad_norm"), 2e-2)
        self.assert_close(half.column("loss"), full.column("loss"), FP16_BOUND)
        self.assertGreater(max(full.column("grad_norm")), 0.5)

    def test_a_run_that_only_overflows_ends_with_the_step_and_a_name(self):
        result = lr.run([lr.BINARY, "train", *lr.flags(self.settings(run=self.folder / "wild", lr=1e8, skip_limit=5, steps=60))])
        self.assertEqual(result.code, 70, str(result))
        self.assertRegex(result.errors, r"step [0-9]+: the gradient was not finite in 5 steps in a row .* first in \w+")

    def test_accumulation_follows_one_large_micro_batch(self):
        one, four = self.train(1, "one"), self.train(1, "four", micro_batch=8)
        self.assert_close(four.column("loss"), one.column("loss"), FP16_BOUND)
        self.assertEqual(four.column("loss_scale"), one.column("loss_scale"))

    def test_the_host_waits_for_the_device_in_no_step(self):
        counts = []
        for steps in (100, 200):
            command = [lr.BINARY, "train", *lr.flags(self.settings(run=self.folder / f"run-{steps}", steps=steps, schedule_steps=200,
                                                                   report_every=10))]
            counts.append(waits.counted(command, self.folder / f"waits-{steps}"))
        self.assertEqual(waits.of_steps(*counts), [])

    def test_a_batch_that_does_not_fit_is_refused_with_what_would(self):
        large = {"layers": 24, "width": 1024, "heads": 16, "global_batch": 2000, "steps": 1}
        result = lr.run([lr.BINARY, "train", *lr.flags(self.settings(run=self.folder / "large", **large))], seconds=300)
        self.assertEqual(result.code, 69, str(result))
        self.assertRegex(result.errors, "a micro-batch of 2000 rows does not fit .* about [0-9]+ rows fit: take --micro-batch [0-9]+")
        taken = int(result.errors.split("take --micro-batch ")[1].split()[0])
        self.assertEqual(2000 % taken, 0)

    def test_two_gpus_follow_one_and_change_no_bit_by_how_they_reduce(self):
        self.needs(2)
        one = self.train(1, "one", growth_interval=8)
        two = self.train(2, "two", growth_interval=8)
        self.assert_close(two.column("loss"), one.column("loss"), FP16_BOUND)
        self.assertEqual(two.column("loss_scale"), one.column("loss_scale"))
        for name, changes in {"again": {}, "off": {"graph": "off"}, "beside": {"overlap": "on"},
                              "after": {"overlap": "off"}}.items():
            self.same(two, self.train(2, name, growth_interval=8, **changes), name)


if __name__ == "__main__":
    if GPUS == 0:
        print("no GPU here: not run")
        sys.exit(1 if os.environ.get("LOCKSTEP_REQUIRE_GPU") == "1" else 77)  # ctest calls 77 skipped
    lr.main()
