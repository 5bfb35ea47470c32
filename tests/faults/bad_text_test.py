"""Text that cannot be packed, trained on or generated: one line says what, where and both values."""
import shutil
import struct

from faulty import RANKS, FaultTest
from lockstep_run import BINARY, digests, flags, main, on_ranks, run

TINY = {"model": "gpt2", "hidden": None, "layers": 1, "width": 16, "heads": 2, "context": 32}


class BadText(FaultTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.shared / "text.txt").write_text("".join(f"this is line {i} of a text\n" for i in range(200)))
        cls.tokens = cls.pack_text("tokens")

    @classmethod
    def pack_text(cls, name, length=32, **changes):
        settings = {"input": cls.shared / "text.txt", "output": cls.shared / name, "sequence_length": length, **changes}
        result = run([BINARY, "pack", "text", *flags(settings)])
        if result.code != 0:
            raise AssertionError(str(result))
        return cls.shared / name

    def refuse_text(self, code, words, **changes):
        return self.refuse(code, words, **{**TINY, "data": self.tokens, **changes})

    def refuse_alone(self, command, code, *words):
        before = digests(self.folder), digests(self.shared)
        self.assert_refused(run([BINARY, *command]), code, *words)
        self.assertEqual(before, (digests(self.folder), digests(self.shared)), "files are not what they were")

    def spoilt(self, row=5, place=7, value=60000):
        """A copy of the tokens with one id that the vocabulary does not have."""
        shutil.copytree(self.tokens, self.folder / "data")
        shard = next((self.folder / "data").glob("*.h5"))
        words = bytearray(shard.read_bytes())
        begin = words.index("this is line 0 of a text\nthis is line 1 of a text\n"[:33].encode("utf-16-le"))
        at = begin + 2 * (row * 33 + place)
        words[at:at + 2] = struct.pack("<H", value)
        shard.write_bytes(words)
        return shard

    def test_rows_longer_than_the_model_are_refused_with_both_lengths(self):
        self.refuse_text(64, ["64 tokens", "--context", "32"], data=self.pack_text("long", length=64))

    def test_models_of_images_refuse_tokens_and_models_of_tokens_images(self):
        for model in ("mlp", "lenet"):
            self.refuse(64, [f"--model {model}", "32 tokens"], model=model, data=self.tokens)
        self.refuse_text(64, ["--model gpt2", "token"], data=self.data)

    def test_evaluation_data_of_another_kind_length_or_tokenizer_is_refused_with_both(self):
        self.refuse_text(65, ["--eval-data", "labelled rows", "tokens"], eval_data=self.data)
        self.refuse_text(65, ["--eval-data", "[16]", "[32]"], eval_data=self.pack_text("short", length=16))
        other = self.pack_text("other", tokenizer="sentencepiece", vocabulary=300)
        self.refuse_text(65, ["--eval-data", "tokenizer"], eval_data=other)

    def test_lockstep_eval_refuses_text_of_another_tokenizer_with_both_hashes(self):
        trained = self.folder / "trained"
        result = run(on_ranks(RANKS, *self.command(**{**TINY, "data": self.tokens, "global_batch": 8, "steps": 2, "run": trained})))
        self.assertEqual(result.code, 0, str(result))
        other = self.pack_text("another", tokenizer="sentencepiece", vocabulary=300)
        self.refuse_alone(["eval", "--run", trained, "--data", other], 65, "tokenizer", str(other), str(trained), "--tokenizer")

    def test_a_token_outside_of_the_vocabulary_is_found_by_verify_and_before_a_step_uses_it(self):
        shard = self.spoilt()
        words = (shard, "tokens", "row 5", "token 60000", "position 7", "[0, 257)")
        self.refuse_alone(["data", "verify", shard.parent], 65, *words)
        command = self.command(**{**TINY, "data": shard.parent, "global_batch": 64, "steps": 4})
        result = run(on_ranks(RANKS, *command))
        self.assertEqual(result.code, 65, str(result))
        for word in words:
            self.assertIn(str(word), result.errors)
        self.assertFalse((self.folder / "run/COMPLETE").exists())

    def test_a_token_outside_of_the_vocabulary_is_found_in_evaluation_data(self):
        shard = self.spoilt()
        result = run(on_ranks(RANKS, *self.command(**{**TINY, "data": self.tokens, "eval_data": shard.parent})))
        self.assertEqual(result.code, 65, str(result))
        self.assertIn("token 60000", result.errors)

    def test_a_tokenizer_that_did_not_make_the_shards_is_refused_with_both_hashes(self):
        shutil.copytree(self.tokens, self.folder / "data")
        other = self.pack_text("subwords", tokenizer="sentencepiece", vocabulary=300)
        for name in ("tokenizer.json", "tokenizer.model"):
            shutil.copy(other / name, self.folder / "data")
        self.refuse_text(65, [self.folder / "data/tokenizer.json", "pack the text again"], data=self.folder / "data")

    def test_what_cannot_be_packed_is_refused(self):
        (self.folder / "empty.txt").write_bytes(b"")
        (self.folder / "short.txt").write_bytes(b"short")
        (self.folder / "latin.txt").write_bytes(b"caf\xe9 " * 400)
        text = self.shared / "text.txt"
        for code, changes, words in (
                (66, {"input": self.folder / "nowhere"}, ["nowhere"]),
                (65, {"input": self.folder / "empty.txt"}, ["empty.txt"]),
                (65, {"input": self.folder / "short.txt"}, ["6 tokens", "--sequence-length 32"]),
                (66, {"input": self.folder / "empty"}, ["empty"]),
                (64, {"sequence_length": 0}, ["--sequence-length", "'0'"]),
                (66, {"tokenizer": "words"}, ["words", "bytes, sentencepiece"]),
                (65, {"tokenizer": text}, [text, "no SentencePiece model"]),
                (64, {"tokenizer": "sentencepiece"}, ["--vocabulary"]),
                (65, {"tokenizer": "sentencepiece", "vocabulary": 100000}, ["100000"]),
                (65, {"tokenizer": "sentencepiece", "vocabulary": 10}, ["10"]),
                (64, {"vocabulary": 300}, ["--vocabulary 300", "bytes"]),
                (65, {"input": self.folder / "latin.txt", "tokenizer": "sentencepiece", "vocabulary": 300},
                 ["latin.txt", "byte 3", "UTF-8"]),
                (64, {"validation_fraction": 0.5}, ["--validation-output"]),
                (64, {"shards": 10000}, ["10000 shards"]),
                (73, {"output": self.tokens}, [self.tokens, "--overwrite"]),
                (73, {"output": self.folder, "overwrite": True}, ["no shard"])):
            settings = {"input": text, "output": self.folder / "out", "sequence_length": 32, **changes}
            with self.subTest(**{name: str(value) for name, value in changes.items()}):
                self.refuse_alone(["pack", "text", *flags(settings)], code, *words)

    def test_generation_is_refused_where_there_is_nothing_to_generate_with(self):
        images = self.train(1, "images", data=self.data, global_batch=8, steps=1)
        text = self.train(1, "text", **{**TINY, "data": self.tokens, "global_batch": 8, "steps": 1})
        spoilt = self.folder / "spoilt"
        shutil.copytree(text.folder, spoilt)
        (spoilt / "tokenizer.json").unlink()
        for code, settings, words in (
                (66, {"run": self.folder / "nowhere"}, ["nowhere"]),
                (66, {"run": text.folder, "checkpoint": self.folder}, [self.folder]),
                (64, {"run": images.folder}, [images.folder, "--model mlp", "labelled rows"]),
                (66, {"run": spoilt}, [spoilt, "tokenizer.json"]),
                (64, {"run": text.folder, "tokens": 0}, ["--tokens"]),
                (64, {"run": text.folder, "temperature": -1}, ["--temperature"]),
                (66, {"run": text.folder, "prompt_file": self.folder / "none.txt"}, ["none.txt"]),
                (64, {"run": text.folder, "prompt": "a", "prompt_file": "b"}, ["--prompt", "--prompt-file"])):
            self.refuse_alone(["generate", *flags({"device": "cpu", **settings})], code, *words)
        result = run(on_ranks(RANKS, "generate", *flags({"run": text.folder, "device": "cpu"})))
        self.assert_refused(result, 64, "one process", RANKS)
        (spoilt / "tokenizer.json").write_text('{"kind": "bytes", "hash": "0"}')
        self.refuse_alone(["generate", *flags({"run": spoilt, "device": "cpu"})], 65, "tokenizer.json", "changed")


if __name__ == "__main__":
    main()
