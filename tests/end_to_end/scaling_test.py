"""perf/scaling.py on CPU ranks: the script of the scaling study runs to its end, and what it checks holds."""
import json
import sys

from lockstep_run import BINARY, ROOT, LockstepTest, flags, main, run
from text_test import write_text


class Scaling(LockstepTest):
    def scaling(self, counts, parts):
        write_text(self.folder / "text.txt", 6000)
        packed = run([BINARY, "pack", "text", *flags({"input": self.folder / "text.txt", "output": self.folder / "data",
                                                     "sequence_length": 64})])
        self.assertEqual(packed.code, 0, str(packed))
        result = run([sys.executable, ROOT / "perf/scaling.py", "--cpu", "--binary", BINARY, "--data", self.folder / "data",
                      "--counts", counts, "--parts", parts, "--output", self.folder / "report.json"])
        self.assertEqual(result.code, 0, str(result))
        return json.loads((self.folder / "report.json").read_text())

    def test_losses_scales_and_replicas_are_alike_at_1_2_4_and_8_ranks(self):
        report = self.scaling("1,2,4,8", "equality")
        self.assertEqual([row["ranks"] for row in report["equality"]], [1, 2, 4, 8])
        self.assertEqual(report["wrong"], [])

    def test_weak_and_strong_scaling_give_a_rate_for_every_count(self):
        report = self.scaling("1,2", "weak,strong")
        self.assertEqual([row["ranks"] for row in report["weak"]], [1, 2, 2])
        self.assertEqual([row["ranks"] for row in report["strong"]], [1, 2])
        for row in report["weak"] + report["strong"]:
            self.assertGreater(row["tokens_per_second_per_gpu"], 0)


if __name__ == "__main__":
    main()
