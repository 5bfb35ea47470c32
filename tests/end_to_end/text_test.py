"""Text, from plain files to generated ones: packing, training, evaluation, resuming and generation hold together."""
import math
import random

from lockstep_run import BINARY, LockstepTest, digests, flags, main, on_ranks, run

WORDS = "one small step of every rank is the same step and no rank waits for another rank to say so".split()
TINY = {"model": "gpt2", "hidden": None, "layers": 2, "width": 32, "heads": 4, "context": 32}
LENGTH = 32


def write_text(path, words, seed=3):
    """Sentences of few words, each followed by one of two: learnable in some tens of steps."""
    draw = random.Random(seed)
    at, line = 0, []
    with open(path, "w") as file:
        for _ in range(words):
            line.append(WORDS[at])
            at = (at + draw.choice((1, 4))) % len(WORDS)
            if len(line) == 12:
                file.write(" ".join(line) + ".\n")
                line = []


class Text(LockstepTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_text(cls.shared / "text.txt", 4000)
        cls.pack_text("bytes")

    @classmethod
    def pack_text(cls, name, **changes):
        """Training and validation rows of the text: 'name/train' and 'name/validation' in the shared folder."""
        settings = {"input": cls.shared / "text.txt", "sequence_length": LENGTH, "output": cls.shared / name / "train",
                    "validation_fraction": 0.1, "validation_output": cls.shared / name / "validation", "shards": 2, **changes}
        result = run([BINARY, "pack", "text", *flags(settings)])
        if result.code != 0:
            raise AssertionError(str(result))
        return result

    def settings(self, **changes):
        return super().settings(**{**TINY, "data": self.shared / "bytes/train", "global_batch": 16, "steps": 20, "lr": 3e-3,
                                   **changes})

    def generate(self, trained, expect=0, **changes):
        result = run([BINARY, "generate", *flags({"run": trained.folder, "device": "cpu", "tokens": 40, **changes})])
        self.assertEqual(result.code, expect, str(result))
        return result

    def test_losses_are_the_same_on_1_2_and_4_ranks_and_with_micro_batches(self):
        alone = self.train(1, "np1", precision="fp32")
        self.assertEqual(alone.column("step"), list(range(1, 21)))
        for ranks in (2, 4):
            self.assert_close(alone.column("loss"), self.train(ranks, f"np{ranks}", precision="fp32").column("loss"), 1e-5)
        cut = self.train(1, "cut", precision="fp32", micro_batch=4)
        self.assert_close(alone.column("loss"), cut.column("loss"), 1e-5)

    def test_in_fp16_losses_and_scales_are_the_same_on_1_2_and_4_ranks(self):
        alone = self.train(1, "np1")
        for ranks in (2, 4):
            together = self.train(ranks, f"np{ranks}")
            self.assert_close(alone.column("loss"), together.column("loss"), 5e-3)
            self.assertEqual(alone.column("loss_scale"), together.column("loss_scale"))

    def test_a_run_that_stops_and_goes_on_is_the_run_that_never_stopped(self):
        settings = {"init_scale": 2**20, "growth_interval": 3}
        whole = self.train(2, "whole", **settings)
        for stop in (1, 7, 20):
            resumed = self.train(2, "stopped", **settings, steps=stop)
        self.assertEqual(whole.reports(), resumed.reports())
        self.assertEqual(whole.shards(), resumed.shards())
        self.assertEqual(whole.state(), resumed.state())

    def test_perplexity_falls_and_tokens_are_counted(self):
        trained = self.train(2, "run", steps=150, eval_data=self.shared / "bytes/validation", eval_every=50)
        evaluations = trained.evaluations()
        self.assertEqual([line["step"] for line in evaluations], [50, 100, 150])
        perplexities = [line["eval_perplexity"] for line in evaluations]
        self.assertEqual(perplexities, sorted(perplexities, reverse=True))
        self.assertLess(perplexities[-1], 4, "of 257 bytes, few can follow: the text is of two words after each")
        for line in evaluations:
            self.assertAlmostEqual(line["eval_perplexity"], math.exp(line["eval_loss"]), places=9)
            self.assertNotIn("eval_accuracy", line)
        reports = [line for line in trained.lines() if "eval_loss" not in line]
        self.assertLess(abs(reports[0]["loss"] - math.log(257)), 0.3, "the first loss is not that of guessing a token")
        for line in reports:
            self.assertAlmostEqual(line["tokens_per_second"] / line["samples_per_second"], LENGTH)
            self.assertNotIn("mfu", line)
        # The same number from the command, at any world size.
        outputs = set()
        for ranks in (1, 2):
            settings = {"run": trained.folder, "data": self.shared / "bytes/validation", "device": "cpu"}
            result = run(on_ranks(ranks, "eval", *flags(settings)))
            self.assertEqual(result.code, 0, str(result))
            outputs.add(result.output)
        self.assertEqual(len(outputs), 1)
        self.assertIn(f"perplexity {perplexities[-1]:.4f}", outputs.pop())

    def test_generation_writes_what_was_learnt_and_a_seed_writes_it_again(self):
        trained = self.train(2, "run", steps=150)
        before = digests(trained.folder)
        first = self.generate(trained, prompt="one small step")
        self.assertTrue(first.output.startswith("one small step"), str(first))
        self.assertGreater(len(first.output), len("one small step") + 5)
        self.assertEqual(first.output, self.generate(trained, prompt="one small step").output)
        self.assertNotEqual(first.output, self.generate(trained, prompt="one small step", seed=2, temperature=1, top_k=5).output)
        likeliest = [self.generate(trained, prompt="one small", temperature=0, seed=seed).output for seed in (1, 2)]
        self.assertEqual(likeliest[0], likeliest[1])
        self.assertTrue(set(likeliest[0].replace("\n", " ").replace(".", " ").split()[2:-1]) & set(WORDS), likeliest[0])
        longer = self.generate(trained, prompt="x" * 100, tokens=5)   # beyond the model's context
        self.assertTrue(longer.output.startswith("x" * 100))
        self.assertIn("100 tokens; the model remembers", longer.errors)
        prompt = self.folder / "prompt.txt"
        prompt.write_text("one small step\nof every")
        self.assertTrue(self.generate(trained, prompt_file=prompt).output.startswith("one small step\nof every"))
        self.assertEqual(before, digests(trained.folder), "generating changed the run")

    def test_a_run_keeps_its_tokenizer_so_that_its_data_may_go(self):
        self.pack_text("subwords", tokenizer="sentencepiece", vocabulary=320)
        self.pack_text("again", tokenizer="sentencepiece", vocabulary=320)
        self.assertEqual(digests(self.shared / "subwords"), digests(self.shared / "again"))
        trained = self.train(2, "run", data=self.shared / "subwords/train", eval_data=self.shared / "subwords/validation",
                             steps=60)
        for name in ("tokenizer.json", "tokenizer.model"):
            self.assertEqual((self.shared / "subwords/train" / name).read_bytes(), (trained.folder / name).read_bytes())
        (self.shared / "subwords").rename(self.shared / "elsewhere")
        self.assertTrue(self.generate(trained, prompt="one small").output.startswith("one small"))


if __name__ == "__main__":
    main()
