"""One global batch gives one training run, however it is split over ranks and micro-batches."""
import statistics

from lockstep_run import LockstepTest, main

FP32 = 1e-5   # relative, each step's loss
FP16 = 5e-3


class Equality(LockstepTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.pack("train", rows=200, shards=2)

    def train_split(self, ranks, name, **changes):
        return self.train(ranks, name, **{"data": self.data, "global_batch": 16, "steps": 50, **changes})

    def assert_learns(self, run):
        losses = run.column("loss")
        self.assertLess(sum(losses[-5:]), 0.9 * sum(losses[:5]), "the data is too hard for this test to mean much")

    def check_fp32(self, **model):
        alone = self.train_split(1, "np1", precision="fp32", **model)
        self.assertEqual(alone.column("step"), list(range(1, 51)))
        self.assert_learns(alone)
        for ranks in (2, 4):
            together = self.train_split(ranks, f"np{ranks}", precision="fp32", **model)
            self.assert_close(alone.column("loss"), together.column("loss"), FP32)

    # A scale that doubles every second clean step from a high start overflows again and again.
    RESTLESS = {"precision": "fp16", "growth_interval": 2}

    def assert_restless(self, run, at_least):
        scales = run.column("loss_scale")
        moves = list(zip(scales, scales[1:]))
        self.assertGreaterEqual(sum(after < before for before, after in moves), at_least, f"overflows in {scales}")
        self.assertGreaterEqual(sum(after > before for before, after in moves), at_least, f"growth in {scales}")

    # In FP16 the splits differ in the last bit of FP32 sums alone, but where that bit lies on an edge of half, a gradient or
    # a weight is rounded to the other side; a step of half is then what parts two runs of lenet, by up to a few percent
    # within 50 steps. That is rare, and which runs it meets depends on the processor: so most runs keep the bound, and all
    # of them a wider one. Ranks that round their own gradients, before the sum, break the first in almost every run.
    WHERE_A_HALF_FLIPPED = 5e-2

    def check_fp16(self, seeds, every, **model):
        """`every`: what no run may exceed. Most keep FP16."""
        parted = []
        for seed in seeds:
            runs = [self.train_split(ranks, f"seed{seed}-np{ranks}", seed=seed, **{"precision": "fp16", **model})
                    for ranks in (1, 2, 4)]
            if "growth_interval" in model:
                self.assert_restless(runs[0], at_least=3)
            for together in runs[1:]:
                self.assertEqual(runs[0].column("loss_scale"), together.column("loss_scale"), f"seed {seed}")
                self.assertEqual(runs[0].column("skipped_steps"), together.column("skipped_steps"), f"seed {seed}")
                self.assert_close(runs[0].column("loss"), together.column("loss"), every)
                parted.append(max(abs(a - b) / max(a, b) for a, b in zip(runs[0].column("loss"), together.column("loss"))))
        self.assertLessEqual(statistics.median(parted), FP16, parted)

    def test_lenet_in_fp32_has_the_same_losses_on_1_2_and_4_ranks(self):
        self.check_fp32(model="lenet")

    def test_mlp_in_fp32_has_the_same_losses_on_1_2_and_4_ranks(self):
        self.check_fp32(model="mlp")

    def test_lenet_in_fp16_has_the_same_losses_and_loss_scales_on_1_2_and_4_ranks(self):
        self.check_fp16(range(1, 5), self.WHERE_A_HALF_FLIPPED, model="lenet")

    def test_lenet_in_fp16_has_the_same_losses_while_the_scale_overflows_again_and_again(self):
        self.check_fp16((1, 2), self.WHERE_A_HALF_FLIPPED, model="lenet", growth_interval=2, init_scale=2**20)

    def test_mlp_in_fp16_has_the_same_losses_and_loss_scales_on_1_2_and_4_ranks(self):
        self.check_fp16((1, 2), FP16, model="mlp", growth_interval=2, init_scale=2**20)
        self.check_fp16((3,), FP16, model="mlp")

    def test_4_micro_batches_equal_one_large_one(self):
        for precision, bound in ((dict(precision="fp32"), FP32), (dict(**self.RESTLESS, init_scale=2**20), FP16)):
            large = self.train_split(1, f"large{bound}", **precision)
            cut = self.train_split(1, f"cut{bound}", micro_batch=4, **precision)
            self.assert_close(large.column("loss"), cut.column("loss"), bound)
            self.assertEqual(large.column("loss_scale"), cut.column("loss_scale"))

    def test_a_batch_that_no_rank_count_divides_gives_the_same_losses_on_1_2_and_4_ranks(self):
        # 200 rows in batches of 21: 11 on the last step of an epoch too.
        alone = self.train_split(1, "np1", precision="fp32", global_batch=21, steps=20)
        for ranks in (2, 4):
            together = self.train_split(ranks, f"np{ranks}", precision="fp32", global_batch=21, steps=20)
            self.assert_close(alone.column("loss"), together.column("loss"), FP32)
            self.assert_close(alone.column("grad_norm"), together.column("grad_norm"), 1e-4)

    def test_overlap_one_seed_twice_and_many_buckets_change_no_bit(self):
        restless = dict(**self.RESTLESS, init_scale=2**20, model="lenet", steps=20)
        first = self.train_split(2, "first", **restless)
        for name, change in (("again", {}), ("waiting", {"overlap": "off"}),
                             ("buckets", {"first_bucket_bytes": 512, "bucket_bytes": 4096})):
            other = self.train_split(2, name, **restless, **change)
            self.assertEqual(first.reports(), other.reports(), name)
            self.assertEqual(first.shards(), other.shards(), name)
        seeded = self.train_split(2, "seeded", **restless, seed=2)
        self.assertNotEqual(first.column("loss"), seeded.column("loss"))


if __name__ == "__main__":
    main()
