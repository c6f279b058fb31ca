#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/: small tokenizers with the ids that `tokenizers` and `sentencepiece` give on hard strings.

    byte_level.json   one vocabulary of the byte alphabet whose merges cross every border that a pre-tokenizer can draw, and for each
                      family its pipeline, the ids and the decoded texts
    NAME.json         gemma4, llama-spm, unigram, unigram-nfkc: tokenizer.json, GGUF metadata, ids and texts of both
    texts.json        the strings: {"text": ...} or, where they are not UTF-8, {"hex": ...}

String number i is encoded with add_special if i is odd and with parse_special unless i % 5 = 4; it is decoded with skip_special if
i % 4 < 2. A decoded text that equals the (repaired) input is null. Needs `pip install tokenizers sentencepiece`.
"""

import json
import random
import tempfile
from pathlib import Path

import golden_tokenizers
import sentencepiece
import tokenizer_families as families
import tokenizer_texts as texts
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TARGET = Path(__file__).parent.parent / "tests/golden/tokenizer"
VOCABULARY = 900


def cases():
    rng = random.Random(11)
    yield from ("", " ", "a", "  ", "\n", "Hello world", " Hello  world ", "It's they'RE I'LL 'Tis we'd'nt", "x\r\n\r\ny\n\n\n z\t\tw ")
    yield from ("1 12 123 1234 12345 1,234.5 3\u00b2 \u0663\u0664\u0665 \u00bd\u2167", "caf\u00e9 cafe\u0301 \u1e69 s\u0323\u0307 s\u0307\u0323 \uac01 \u1100\u1161\u11a8")
    yield from ("CamelCaseXMLHttp HTMLParser aBC \u01c5x \u02b0a \u00aab", "\u4e2d\u6587\u5b57\u7b26\u3002\u65e5\u672c\u8a9e\u3067\u3059 \u30ab\u30bf\u30ab\u30ca\uff01\uff01 \ud55c\uad6d\uc5b4")
    yield from ("\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e01\u0e33 \u0e51\u0e52", "\u0627\u0644\u0639\u0631\u0628\u064a\u0651\u0629\u060c \u0661\u0662\u061f", "\u0939\u093f\u0928\u094d\u0926\u0940\u0964 \u05e9\u05b8\u05dc\u05d5\u05b9\u05dd")
    yield "".join(texts.EMOJI)
    yield "a".join(texts.SPACES)
    yield " ".join(texts.SPECIALS)
    yield "<|im_start|>user\nhi<|im_end|>\n<think>    x</think> <\uff5cuser\uff5c>"
    yield "<bos><|turn>user\nhi<turn|>\n <tool>x<tool> </s><s> <unk>"
    yield "\u2581\u2581a \u2581b <0x41><0x0A>"
    yield "\U00010d4a\U00031350\u1c89 \U00010d40 new in Unicode 15 and 16 \u20c0"
    yield from ("a" * 100, " " * 70 + "x", "\n" * 40 + " \n", "ab" * 60, "\u4e00" * 50, "1234567890" * 8, "!" * 37, "-=" * 30 + "\n", "\U0001F600" * 9, "e\u0301\u0323" * 12)
    yield from texts.CODE.split("\n")
    mixed = list(texts.SCRIPTS.values())
    for _ in range(45):
        yield "".join(texts.random_text(rng, rng.choice(mixed), rng.randint(1, 6)) for _ in range(rng.randint(1, 14)))
    for _ in range(20):
        yield "".join(rng.choice(texts.SPACES + texts.EMOJI + texts.SPECIALS + ["word", "It's", "42"]) for _ in range(14))
    yield from (b"\xff\xfe abc \xc3( \xe2\x82 \xf0\x9f\x98 end\xe2", b"\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80", b"caf\xe9 \xf0\x9f\x98\x80\xf0\x9f")


def training():
    rng = random.Random(3)
    lines = golden_tokenizers.TEXT.split("\n") * 3 + texts.CODE.split("\n") * 3
    for ranges in texts.SCRIPTS.values():
        narrow = [(low, min(high, low + 30)) for low, high in ranges]
        lines += [texts.random_text(rng, narrow, 60) for _ in range(12)]
    return [line for line in lines if line and "<" not in line and "\x00" not in line]


def expected(tokenizer, strings):
    ids, decoded = [], []
    for i, data in enumerate(strings):
        text = data.decode("utf-8", errors="replace") if isinstance(data, bytes) else data
        tokenizer.encode_special_tokens = i % 5 == 4
        ids.append(tokenizer.encode(text, add_special_tokens=i % 2 == 1).ids)
        out = tokenizer.decode(ids[-1], skip_special_tokens=i % 4 < 2)
        decoded.append(None if out == text else out)
    return {"ids": ids, "decoded": decoded}


def expected_spm(model, strings):
    """Without special tokens; null where the library itself would cut the text (NUL) or know more symbols than the file says."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids, decoded = [], []
    for data in strings:
        text = data.decode("utf-8", errors="replace") if isinstance(data, bytes) else data
        usable = "\x00" not in text and "<tool>" not in text
        ids.append(processor.encode(text) if usable else None)
        out = processor.decode(ids[-1]) if usable else text
        decoded.append(None if out == text else out)
    return {"ids": ids, "decoded": decoded}


def shared_vocabulary(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=8,
    )
    # Short stretches that start anywhere, so that the merges cross words, numbers, spaces and lines.
    rng = random.Random(9)
    joined = "\n".join(lines) + " \n\n\r\n  \t\t    !!!--==1234567890  1 2 12 123 a1 1a A. .a \n. '' 's 't 'll "
    stretches = []
    for _ in range(4000):
        start = rng.randrange(len(joined))
        stretches.append(joined[start : start + rng.randint(2, 12)])
    tokenizer.train_from_iterator(stretches, trainer)
    return tokenizer


def byte_level(lines, strings):
    base = json.loads(shared_vocabulary(lines).to_str())["model"]
    out = {"tokens": [t for t, _ in sorted(base["vocab"].items(), key=lambda item: item[1])], "merges": base["merges"], "families": []}
    for name, (splitters, normalizer, ignore_merges, bos) in families.BYTE_LEVEL.items():
        tokenizer = Tokenizer(models.BPE(vocab=base["vocab"], merges=[tuple(m) for m in base["merges"]], ignore_merges=ignore_merges))
        if normalizer:
            tokenizer.normalizer = normalizer
        steps = list(splitters)
        if not families.ends_with_byte_level(steps):
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("    ", normalized=False)])
        tokenizer.add_special_tokens([AddedToken("<\uff5cuser\uff5c>", normalized=False)])
        if bos:
            tokenizer.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
        pipeline = json.loads(tokenizer.to_str())
        del pipeline["model"]["vocab"], pipeline["model"]["merges"]
        out["families"].append({"name": name, "add_bos": bos, "tokenizer": pipeline} | expected(tokenizer, strings))
    return out


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # One list of ids a line keeps differences readable.
    path = TARGET / f"{name}.json"
    path.write_text(text.replace("],[", "],\n["), encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size} bytes")


def main():
    TARGET.mkdir(parents=True, exist_ok=True)
    strings, lines = list(cases()), training()
    write("texts", [{"hex": s.hex()} if isinstance(s, bytes) else {"text": s} for s in strings])
    write("byte_level", byte_level(lines, strings))

    family = families.gemma(lines, VOCABULARY)
    tokenizer = Tokenizer.from_str(family.json)
    write("gemma4", {"tokenizer": json.loads(family.json), "json": expected(tokenizer, strings), "gguf": {"metadata": family.gguf} | expected(tokenizer, strings)})
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        # A small normalizer instead of NFKC's 300 kB: wide letters, ligatures, a space, an accent.
        for source, target in (("FF21", "41"), ("FF22", "42"), ("FB01", "66 69"), ("3000", "20"), ("A0", "20"), ("9", "20"), ("A", "20"), ("65 301", "E9"), ("2167", "56 49 49 49")):
            rules.write(f"{source}\t{target}\n")
        rules.flush()
        families.NFKC = {"normalization_rule_tsv": rules.name}
        for family in (families.spm_bpe(lines, VOCABULARY), families.spm_unigram(lines, VOCABULARY), families.spm_unigram(lines, VOCABULARY, nfkc=True)):
            family.gguf["scores"] = [float(f"{score:.9g}") for score in family.gguf["scores"]]
            write(
                family.name,
                {
                    "tokenizer": json.loads(family.json),
                    "json": expected(Tokenizer.from_str(family.json), strings),
                    "gguf": {"metadata": family.gguf} | expected_spm(family.spm, strings),
                },
            )


if __name__ == "__main__":
    main()
