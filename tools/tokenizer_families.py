"""Tokenizers of every kind that the engine reads, trained on given texts, as tokenizer.json and as GGUF metadata.

Used by tokenizer_compare.py and make_tokenizer_fixtures.py. Needs `pip install tokenizers sentencepiece gguf`.
"""

import base64
import io
import json
import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HEAD = r"[^\r\n\p{L}\p{N}]?"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|{HEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}"
QWEN2 = rf"{CONTRACTIONS}|{HEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}"
QWEN35 = rf"{CONTRACTIONS}|{HEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{TAIL}"
GPT4O = (
    rf"{HEAD}{UPPER}*{LOWER}+{CONTRACTIONS}?|{HEAD}{UPPER}+{LOWER}*{CONTRACTIONS}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"
)
TEKKEN = rf"{HEAD}{UPPER}*{LOWER}+|{HEAD}{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"
KIMI_UPPER, KIMI_LOWER = (s[:-1] + r"&&[^\p{Han}]]" for s in (UPPER, LOWER))
KIMI = (
    rf"[\p{{Han}}]+|{HEAD}{KIMI_UPPER}*{KIMI_LOWER}+{CONTRACTIONS}?|{HEAD}{KIMI_UPPER}+{KIMI_LOWER}*{CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}"
)
# The letters that DeepSeek LLM's file lists one by one, as code points.
DEEPSEEK_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 "
    "104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
DEEPSEEK_LETTERS = "".join("-".join(chr(int(c, 16)) for c in item.split("-")) for item in DEEPSEEK_LETTERS.split())
CJK_AND_MORE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{TAIL}"
)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


# name in GGUF: (splitters, normalizer, ignore_merges, puts <bos> in front)
BYTE_LEVEL = {
    "gpt-2": ([pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)], None, False, False),
    "llama-bpe": ([split(LLAMA3)], None, True, True),
    "qwen2": ([split(QWEN2)], normalizers.NFC(), False, False),
    "qwen35": ([split(QWEN35)], normalizers.NFC(), False, False),
    "gpt-4o": ([split(GPT4O)], None, False, False),
    "tekken": ([split(TEKKEN)], None, True, True),
    "kimi-k2": ([split(KIMI)], None, False, False),
    "deepseek-llm": (
        [
            split(r"[\r\n]"),
            split(rf"\s?[{DEEPSEEK_LETTERS}]+"),
            split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
            split(r"\s+$"),
            split(CJK_AND_MORE),
            split(r"\p{N}+"),
        ],
        None,
        False,
        False,
    ),
    "deepseek-coder": (
        [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK_AND_MORE), pre_tokenizers.Digits(True)],
        None,
        False,
        False,
    ),
    "deepseek-v3": (
        [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEPSEEK_V3)],
        None,
        False,
        False,
    ),
    "starcoder": (
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
        None,
        False,
        False,
    ),
    "falcon": (
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            pre_tokenizers.Digits(False),
            split("[0-9][0-9][0-9]"),
        ],
        None,
        False,
        False,
    ),
    "bailingmoe": (
        [
            split(
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
                r"|\s+(?!\S)|\s+"
            )
        ],
        None,
        False,
        False,
    ),
    "superbpe": ([split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))")], None, False, False),
    "bloom": ([split(" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+")], None, False, False),
}


@dataclass
class Family:
    """A trained tokenizer. `json` is the text of tokenizer.json, `gguf` the metadata without the prefix tokenizer.ggml."""

    name: str
    json: str | None = None
    gguf: dict = field(default_factory=dict)
    spm: bytes | None = None  # the oracle of the GGUF route, where it is SentencePiece


def ends_with_byte_level(splitters):
    return any(isinstance(s, pre_tokenizers.ByteLevel) for s in splitters)


def byte_level(name, texts, vocab_size):
    splitters, normalizer, ignore_merges, bos = BYTE_LEVEL[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = list(splitters)
    if not ends_with_byte_level(steps):
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("    ", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<\uff5cuser\uff5c>", normalized=False)])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))]
        )
    family = Family(name, tokenizer.to_str())
    family.gguf = gguf_of_json(family.json, "gpt2", name)
    family.gguf["add_bos_token"] = bos
    family.gguf["bos_token_id"] = family.gguf["eos_token_id"] = tokenizer.token_to_id("<|endoftext|>")
    return family


def gguf_of_json(text, model, pre):
    """What a converter writes for a BPE tokenizer.json."""
    data = json.loads(text)
    added = {token["id"]: token for token in data["added_tokens"]}
    vocab = {i: t for t, i in data["model"]["vocab"].items()}
    size = max(list(vocab) + list(added)) + 1
    tokens, types = [], []
    for i in range(size):
        if i in added:
            tokens.append(added[i]["content"])
            types.append(CONTROL if added[i]["special"] else USER_DEFINED)
        else:
            tokens.append(vocab[i])
            is_byte = model != "gpt2" and len(vocab[i]) == 6 and vocab[i].startswith("<0x")
            types.append(BYTE if is_byte else NORMAL)
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    return {"model": model, "pre": pre, "tokens": tokens, "token_type": types, "merges": merges}


def gemma(texts, vocab_size):
    """Characters, U+2581 for spaces, byte fallback, and no pre-tokenizer that cuts anything."""
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    # Merges are learnt within words and within runs of newlines.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split(r"\n+"), pre_tokenizers.Split(Regex(f"(?<!{SPACE}){SPACE}+[^{SPACE}]*"), "isolated")]
    )
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special + bytes_, limit_alphabet=400, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] not in bytes_]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("<|turn>", normalized=False), AddedToken("<turn|>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
    )
    family = Family("gemma4", tokenizer.to_str())
    family.gguf = gguf_of_json(family.json, "gemma4", "gemma4")
    family.gguf |= {"bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3, "add_bos_token": True}
    return family


def train_sentencepiece(texts, vocab_size, kind, **options):
    # The library insists on tokens for (nearly) all characters: leave out lines with rare ones, which then need byte tokens.
    frequent = {c for c, _ in Counter("".join(texts)).most_common(vocab_size // 4)}
    texts = [text for text in texts if text and frequent.issuperset(text)]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=out,
        model_type=kind,
        vocab_size=vocab_size,
        byte_fallback=True,
        character_coverage=0.99,
        user_defined_symbols=["<tool>"],
        num_threads=1,
        hard_vocab_limit=False,
        max_sentence_length=1 << 20,
        minloglevel=2,
        **options,
    )
    return out.getvalue()


def gguf_of_spm(spm, model, prefix=True):
    processor = sentencepiece.SentencePieceProcessor(model_proto=spm)
    ids = range(processor.vocab_size())

    def kind(i):
        if processor.is_unknown(i):
            return UNKNOWN
        if processor.is_control(i):
            return CONTROL
        if processor.is_byte(i):
            return BYTE
        if processor.is_unused(i):
            return UNUSED
        return USER_DEFINED if processor.id_to_piece(i) == "<tool>" else NORMAL

    return {
        "model": model,
        "tokens": [processor.id_to_piece(i) for i in ids],
        "scores": [processor.get_score(i) for i in ids],
        "token_type": [kind(i) for i in ids],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": True,
        "add_eos_token": False,
        "add_space_prefix": prefix,
    }


NFKC = {"normalization_rule_name": "nmt_nfkc"}
IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def spm_bpe(texts, vocab_size):
    """As Llama 2: SentencePiece BPE; in tokenizer.json the merges are derived from the scores."""
    spm = train_sentencepiece(texts, vocab_size, "bpe", allow_whitespace_only_pieces=True, **IDENTITY)
    gguf = gguf_of_spm(spm, "llama")
    vocab = {token: i for i, token in enumerate(gguf["tokens"])}
    merges = []
    for token, i in vocab.items():
        if gguf["token_type"][i] == NORMAL:
            for cut in range(1, len(token)):
                if token[:cut] in vocab and token[cut:] in vocab:
                    merges.append((-gguf["scores"][i], vocab[token[:cut]], vocab[token[cut:]], token[:cut], token[cut:]))
    merges.sort()
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=[(left, right) for *_, left, right in merges],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return Family("llama-spm", tokenizer.to_str(), gguf, spm)


def spm_unigram(texts, vocab_size, nfkc=False):
    options = NFKC if nfkc else IDENTITY
    spm = train_sentencepiece(texts, vocab_size, "unigram", **options)
    gguf = gguf_of_spm(spm, "t5")
    gguf |= {"add_bos_token": False, "add_eos_token": True}
    tokenizer = Tokenizer(
        models.Unigram(list(zip(gguf["tokens"], gguf["scores"])), unk_id=0, byte_fallback=True)
    )
    steps = []
    if nfkc:
        charsmap = charsmap_of(spm)
        gguf["precompiled_charsmap"] = list(charsmap)
        gguf["remove_extra_whitespaces"] = True
        steps = [
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE},
        ]
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    data = json.loads(tokenizer.to_str())
    if steps:
        data["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return Family("unigram-nfkc" if nfkc else "unigram", json.dumps(data), gguf, spm)


def charsmap_of(spm):
    """normalizer_spec.precompiled_charsmap of a SentencePiece model (protobuf fields 3 and 2)."""

    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(data):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
            elif key & 7 == 2:
                size = varint()
                yield key >> 3, data[at : at + size]
                at += size
            else:
                size = {1: 8, 5: 4}[key & 7]
                yield key >> 3, data[at : at + size]
                at += size

    spec = next(value for number, value in fields(spm) if number == 3)
    return next(value for number, value in fields(spec) if number == 2)


def write_gguf(path, metadata):
    """A GGUF file without tensors that holds the metadata."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "none")
    for key, value in metadata.items():
        name = "tokenizer.ggml." + key
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def all_families(texts, vocab_size, only=None, cache=None):
    """One after the other, because some take long to train; those in the folder `cache` are read from there."""
    makers = {name: (lambda name=name: byte_level(name, texts, vocab_size)) for name in BYTE_LEVEL}
    makers["gemma4"] = lambda: gemma(texts, vocab_size)
    makers["llama-spm"] = lambda: spm_bpe(texts, vocab_size)
    makers["unigram"] = lambda: spm_unigram(texts, vocab_size)
    makers["unigram-nfkc"] = lambda: spm_unigram(texts, vocab_size, nfkc=True)
    for name, make in makers.items():
        if only and name not in only:
            continue
        path = Path(cache) / f"{name}.pickle" if cache else None
        if path and path.exists():
            yield pickle.loads(path.read_bytes())
            continue
        family = make()
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(family))
        yield family


def save(family, folder):
    """FOLDER/NAME.json, .gguf and, where there is one, .model; returns the paths of the first two."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    json_path, gguf_path = folder / f"{family.name}.json", folder / f"{family.name}.gguf"
    json_path.write_text(family.json)
    write_gguf(gguf_path, family.gguf)
    if family.spm:
        (folder / f"{family.name}.model").write_bytes(family.spm)
    return json_path, gguf_path
