"""Data that is missing, damaged or not what it should be: file, dataset and both values are named before the first step."""
import shutil

from faulty import FaultTest
from lockstep_run import main

# HDF5's description of an unsigned byte, and of a signed one, in a shard's header.
UNSIGNED = bytes.fromhex("100000000100000000000800")
SIGNED = bytes.fromhex("100800000100000000000800")


class BadData(FaultTest):
    def copy(self):
        """The good data set, to be spoilt, and its shards."""
        folder = self.folder / "data"
        shutil.copytree(self.data, folder)
        return folder, sorted(folder.iterdir())

    def test_a_missing_folder_is_named(self):
        self.refuse(66, [self.folder / "nowhere"], data=self.folder / "nowhere")

    def test_an_empty_folder_is_named_with_what_belongs_there(self):
        (self.folder / "empty").mkdir()
        self.refuse(66, [self.folder / "empty", "*.h5"], data=self.folder / "empty")

    def test_missing_evaluation_data_is_named(self):
        self.refuse(66, [self.folder / "nowhere"], eval_data=self.folder / "nowhere")

    def test_a_file_that_is_not_hdf5_is_named(self):
        folder, shards = self.copy()
        for words in (b"these are no shards\n" * 500, b""):
            shards[1].write_bytes(words)
            self.refuse(65, [shards[1], "HDF5"], data=folder)

    def test_a_truncated_shard_is_named_with_both_sizes(self):
        folder, shards = self.copy()
        whole = shards[0].stat().st_size
        for cut in (whole - 1, whole // 2, 4096, 100):
            with open(shards[0], "r+b") as file:
                file.truncate(cut)
            self.refuse(65, [shards[0], whole if cut > 4096 else "", cut], data=folder)

    def test_shards_of_different_shapes_are_named_with_both(self):
        folder, shards = self.copy()
        other = self.pack("wide", rows=20, side=14)
        shutil.copy(next(other.iterdir()), folder / "zz.h5")
        self.refuse(65, [folder / "zz.h5", shards[0], "[1, 14, 14]", "[1, 12, 12]"], data=folder)

    def test_shards_of_different_types_are_named_with_both(self):
        folder, shards = self.copy()
        words = shards[1].read_bytes()
        self.assertEqual(words.count(UNSIGNED), 2, "one description for the inputs, one for the targets")
        shards[1].write_bytes(words.replace(UNSIGNED, SIGNED, 1))
        self.refuse(65, [shards[1], shards[0], "dataset inputs", "uint8", "int8"], data=folder)

    def test_shards_of_different_classes_are_named_with_both(self):
        folder, shards = self.copy()
        other = self.pack("more", rows=20, patterns=6)
        shutil.copy(next(other.iterdir()), folder / "zz.h5")
        self.refuse(65, [folder / "zz.h5", shards[0], "classes", " 6", " 4"], data=folder)

    def test_a_label_outside_of_the_classes_is_named_with_its_row(self):
        data = self.pack("labelled", rows=24, label=3)
        shard = self.folder / "labelled.h5"
        words = bytearray(next(data.iterdir()).read_bytes())
        labels = bytes([3]) * 24
        self.assertEqual(words.count(labels), 1)
        words[words.index(labels) + 17] = 9
        shard.write_bytes(words)
        self.refuse(65, [shard, "targets", "row 17", "label 9", "4 classes"], data=shard)

    def test_evaluation_data_of_another_shape_is_named_with_both(self):
        other = self.pack("big", rows=20, side=14)
        self.refuse(65, ["--eval-data", "--data", "[1, 14, 14]", "[1, 12, 12]"], eval_data=other)


if __name__ == "__main__":
    main()
