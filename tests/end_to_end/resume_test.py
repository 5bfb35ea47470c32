"""A run that stops and goes on is, bit for bit, the run that never stopped."""
import json
import os
import pathlib
import signal
import time

from lockstep_run import BINARY, LockstepTest, Run, digests, flags, main, on_ranks, run, start, wait

# A scale that overflows and grows within a few steps, so that stops fall before, between and after both.
RESTLESS = {"init_scale": 2**20, "growth_interval": 3, "lr": 0.01, "schedule": "cosine", "warmup_steps": 3}


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Resume(LockstepTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.pack("train", rows=40, shards=2)        # 5 steps an epoch in batches of 8
        cls.eval_data = cls.pack("eval", rows=21, seed=8)

    def stop_at(self, ranks, name, steps, **changes):
        return self.train(ranks, name, **{"data": self.data, "global_batch": 8, "schedule_steps": 20, **RESTLESS,
                                          "steps": steps, **changes})

    def assert_never_stopped(self, whole, resumed):
        self.assertEqual(whole.reports(), resumed.reports())
        self.assertEqual(whole.shards(), resumed.shards())
        self.assertEqual(whole.state(), resumed.state())

    def test_stops_after_any_step_leave_no_trace(self):
        whole = self.stop_at(2, "whole", 12)
        scales = whole.column("loss_scale")
        for stop in range(1, 12):   # 5 and 10 end an epoch
            self.stop_at(2, "stopped", stop)
        resumed = self.stop_at(2, "stopped", 12)
        self.assert_never_stopped(whole, resumed)
        moves = {"overflow": 0, "growth": 0}
        for before, after in zip(scales, scales[1:]):
            moves["overflow"] += after < before
            moves["growth"] += after > before
        self.assertGreaterEqual(min(moves.values()), 2, f"the scale did too little to mean much: {scales}")

    def test_evaluations_and_a_ragged_batch_go_on_too(self):
        settings = {"eval_data": self.eval_data, "eval_every": 2, "model": "lenet", "global_batch": 9,
                    "micro_batch": None, "augment_shift": 2}
        whole = self.stop_at(2, "whole", 12, **settings)
        for stop in (4, 5, 12):   # in the middle and at the end of an epoch
            resumed = self.stop_at(2, "stopped", stop, **settings)
        self.assert_never_stopped(whole, resumed)
        every_second = [line for line in resumed.evaluations() if line["step"] % 2 == 0]
        self.assertEqual([line["step"] for line in every_second], [2, 4, 6, 8, 10, 12])
        self.assertEqual(whole.evaluations(), every_second)

    def test_a_checkpoint_in_the_middle_is_a_place_to_go_on_from(self):
        whole = self.stop_at(2, "whole", 12, checkpoint_steps=4, keep_checkpoints=0)
        other = self.stop_at(2, "other", 12, resume=whole.folder / "checkpoints/step-0000000004")
        self.assertEqual(whole.reports()[4:], other.reports())
        self.assertEqual(whole.shards(), other.shards())

    def test_another_number_of_ranks_takes_the_rest_of_the_epoch_once_in_the_same_order(self):
        # 16 samples in batches of 4: one rank stops at step 6, in the middle of the second epoch.
        data = self.pack("sixteen", rows=16)
        settings = {"data": data, "global_batch": 4, "precision": "fp32", "lr": 0.01, "schedule_steps": 16}
        whole = self.train(1, "whole", **settings, steps=16)
        self.train(1, "stopped", **settings, steps=6, micro_batch=2)   # which 4 ranks could not keep
        self.train(2, "stopped", **settings, steps=11, micro_batch=1, overlap="off")
        resumed = self.train(4, "stopped", **settings, steps=16, bucket_bytes="1KiB")
        self.assertEqual(whole.column("step"), resumed.column("step"))
        self.assertEqual(whole.column("samples"), resumed.column("samples"))
        self.assert_close(whole.column("loss"), resumed.column("loss"), 1e-5)
        self.assertEqual(resumed.column("samples")[-1], 4 * 16)

    def test_every_later_epoch_has_an_order_of_its_own(self):
        # With a learning rate of zero, the loss of a step tells which samples were in it.
        data = self.pack("sixteen_again", rows=16)
        settings = {"data": data, "global_batch": 4, "precision": "fp32", "lr": 0, "steps": 12}
        self.train(1, "run", **{**settings, "steps": 6})
        losses = self.train(2, "run", **settings).column("loss")
        epochs = [losses[i:i + 4] for i in range(0, 12, 4)]
        for epoch in epochs[1:]:
            self.assertAlmostEqual(sum(epoch), sum(epochs[0]), places=5, msg="an epoch lacks or repeats samples")
        for left, right in ((0, 1), (1, 2), (0, 2)):
            self.assertGreater(max(abs(a - b) for a, b in zip(epochs[left], epochs[right])), 1e-4,
                               f"epochs {left} and {right} have one order: {epochs}")

    def test_nothing_is_done_twice_when_the_run_is_complete(self):
        complete = self.stop_at(2, "run", 4)
        before = digests(complete.folder)
        for steps in (4, 3):
            self.stop_at(2, "run", steps)
            self.assertEqual(before, digests(complete.folder))
        # Stopped between its last checkpoint and the mark of completion, a run still gets the mark.
        (complete.folder / "COMPLETE").unlink()
        self.stop_at(2, "run", 4)
        self.assertEqual(before, digests(complete.folder))

    def test_a_longer_run_is_not_complete_before_its_own_end(self):
        # Every step overflows: 4 of them are let pass, the longer run ends with an error.
        stuck = {"init_scale": 1e30, "min_scale": 1e30, "skip_limit": 6}
        complete = self.stop_at(2, "run", 4, **stuck)
        self.assertEqual((complete.folder / "COMPLETE").read_text(), "step 4\n")
        self.stop_at(2, "run", 20, expect=70, **stuck)
        self.assertFalse((complete.folder / "COMPLETE").exists())

    def test_a_job_killed_at_once_goes_on_from_its_last_checkpoint(self):
        whole = self.stop_at(2, "whole", 40, schedule_steps=40, checkpoint_steps=10)
        settings = self.settings(run=self.folder / "killed", data=self.data, global_batch=8, schedule_steps=40, **RESTLESS,
                                 checkpoint_steps=10)
        # Far more steps than there is time for: the run is killed while it trains, after its first checkpoint.
        job = start(on_ranks(2, "train", *flags({**settings, "steps": 10**7, "keep_checkpoints": 0})))
        killed = Run(self.folder / "killed")
        try:
            deadline = time.monotonic() + 60
            while not killed.checkpoints() and time.monotonic() < deadline and job.poll() is None:
                time.sleep(0.01)
        finally:
            for pid in [job.pid, *children(job.pid)]:
                os.kill(pid, signal.SIGKILL)
            wait(job)
        self.assertTrue(killed.checkpoints(), "no checkpoint within 60 s")
        # Late kills leave more than 40 steps: the rest of this test is about the first checkpoint.
        for late in killed.checkpoints()[1:]:
            for path in late.iterdir():
                path.unlink()
            late.rmdir()
        metrics = killed.folder / "metrics.jsonl"
        metrics.write_text("".join(f"{json.dumps(line)}\n" for line in killed.lines() if line["step"] <= 23))
        reached = killed.column("step")[-1]
        resumed = self.stop_at(2, "killed", 40, schedule_steps=40, checkpoint_steps=10)
        self.assertGreaterEqual(reached, 10)
        self.assert_never_stopped(whole, resumed)
        verified = run([BINARY, "checkpoint", "verify", resumed.folder])
        self.assertEqual(verified.code, 0, str(verified))


if __name__ == "__main__":
    main()
