"""What the tests of bad input share: a command that must be refused, and leave everything as it was."""
from lockstep_run import LockstepTest, digests, flags, on_ranks, run

RANKS = 2


class FaultTest(LockstepTest):
    """Runs with mistakes, in a folder where nothing may change."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.pack("train", rows=40, shards=2)

    def command(self, *more, **changes):
        """A training that would work, but for `changes`."""
        settings = {"data": self.data, "run": self.folder / "run", "global_batch": 8, "steps": 2, **changes}
        return ["train", *flags(self.settings(**settings)), *more]

    def refuse(self, code, words, *more, variables=None, **changes):
        """`words` all stand in the one line of the refusal, and no file was made, changed or lost."""
        before = digests(self.folder), digests(self.shared)
        result = run(on_ranks(RANKS, *self.command(*more, **changes)), variables)
        self.assert_refused(result, code, *words)
        self.assertEqual(before, (digests(self.folder), digests(self.shared)), "files are not what they were")
        return result
