"""Tiny tokenizers for the golden models: the real pipelines of four families with vocabularies of a few hundred tokens.

Each builder returns a Tiny: the `tokenizers.Tokenizer` (written as tokenizer.json), the names of its special tokens,
whether a begin-of-text token is put in front, and what a GGUF file says about it (`pre`, `scores`). Learned from TEXT
below, always the same way.
"""

from collections import Counter
from dataclasses import dataclass, field

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXT = """The sun was high and the children ran down to the river, where the old miller sat and looked at the water.
"There is a stone in the stream," he said, "and under the stone there is a key." They did not believe him at first.
Le soleil était haut et les enfants couraient vers la rivière; le vieux meunier les regardait sans rien dire.
Die Sonne stand hoch, und die Kinder liefen zum Fluss hinunter, wo der alte Müller saß und auf das Wasser blickte.
Il sole era alto e i bambini correvano verso il fiume. El molinero viejo los miraba y no decía nada, señor mío.
In 1906 there were 32 houses, 4 mills and 128 people in the village; by 1914 only 7 of the houses were still lived in.
"""

QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
# OpenAI's o200k: words by upper and lower case, contractions at their end.
UPPER, LOWER = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]")
O200K_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_PATTERN = QWEN2_PATTERN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


@dataclass
class Tiny:
    """A tokenizer. `gguf_model` and `pre` are the GGUF names; `scores` is set for SentencePiece-style ones."""

    tokenizer: Tokenizer
    bos: str | None
    eos: str
    pad: str | None
    add_bos: bool
    gguf_model: str
    pre: str | None
    scores: list[float] | None = None
    control: list[str] = field(default_factory=list)

    def id(self, token):
        return None if token is None else self.tokenizer.token_to_id(token)

    @property
    def vocab_size(self):
        return self.tokenizer.get_vocab_size()

    def config(self):
        """tokenizer_config.json"""
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.bos,
            "eos_token": self.eos,
            "pad_token": self.pad,
            "add_bos_token": self.add_bos,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 512,
        }


def _special(tokenizer, names):
    tokenizer.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in names])


def _bos_in_front(tokenizer, bos):
    return processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )


def _learn(words, alphabet, count):
    """`count` merges of byte-pair encoding over `words`, the most frequent pair first, ties to the smaller pair.

    Here and not the package's trainer, whose choice between ties changes from run to run. Characters outside `alphabet`
    are never merged.
    """
    sequences = [(list(word), times) for word, times in sorted(Counter(words).items())]
    merges = []
    while len(merges) < count:
        pairs = Counter()
        for parts, times in sequences:
            for pair in zip(parts, parts[1:]):
                if all(len(p) > 1 or p in alphabet for p in pair):
                    pairs[pair] += times
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for parts, _ in sequences:
            at = 0
            while at + 1 < len(parts):
                if (parts[at], parts[at + 1]) == best:
                    parts[at : at + 2] = ["".join(best)]
                at += 1
    return merges


def _byte_level(pattern, vocab):
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    words = [piece for line in TEXT.splitlines() for piece, _ in split.pre_tokenize_str(line)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = _learn(words, set(alphabet), vocab - len(alphabet))
    tokens = alphabet + ["".join(m) for m in merges]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def qwen2(vocab=288):
    """Byte-level BPE, the qwen2 pattern, NFC, special tokens behind the vocabulary, no begin-of-text token."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = _byte_level(QWEN2_PATTERN, vocab - len(names))
    tokenizer.normalizer = normalizers.NFC()
    _special(tokenizer, names)
    return Tiny(tokenizer, None, names[2], names[0], False, "gpt2", "qwen2", control=names)


def gpt_oss(vocab=288):
    """Byte-level BPE, the o200k pattern, the special tokens of harmony, no begin-of-text token in front."""
    names = ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>"]
    names.append("<|call|>")
    tokenizer = _byte_level(O200K_PATTERN, vocab - len(names))
    _special(tokenizer, names)
    return Tiny(tokenizer, names[0], names[2], names[1], False, "gpt2", "gpt-4o", control=names)


def llama3(vocab=288):
    """Byte-level BPE, the llama3 pattern (numbers in threes), a begin-of-text token in front."""
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    tokenizer = _byte_level(LLAMA3_PATTERN, vocab - len(names))
    _special(tokenizer, names)
    tokenizer.post_processor = _bos_in_front(tokenizer, names[0])
    return Tiny(tokenizer, names[0], names[1], None, True, "gpt2", "llama-bpe", control=names)


def _pieces(first, vocab, prefix):
    """(table, merges, scores) of a SentencePiece-style BPE: `first`, the 256 bytes, merged pieces, single characters.

    Real SentencePiece vocabularies have that order, and scores that fall from the first merged piece to the last
    character. The 40 most frequent characters are in; the others go the way of the bytes.
    """
    split = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never")
    words = [piece for line in TEXT.splitlines() for piece, _ in split.pre_tokenize_str(line)]
    frequency = Counter("".join(words))
    single = sorted(sorted(frequency, key=lambda c: (-frequency[c], c))[:40])
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    merges = _learn(words, set(single), vocab - len(first) - len(bytes_) - len(single))
    learned = ["".join(m) for m in merges] + single
    scores = [0.0] * (len(first) + len(bytes_)) + [-float(i) for i in range(len(learned))]
    return {t: i for i, t in enumerate(first + bytes_ + learned)}, merges, scores


def llama2(vocab=320):
    """SentencePiece-style BPE with byte fallback: a space in front, U+2581 for spaces, <s> in front."""
    names = ["<unk>", "<s>", "</s>"]
    table, merges, scores = _pieces(names, vocab, prefix=True)
    tokenizer = Tokenizer(models.BPE(table, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    _special(tokenizer, names)
    tokenizer.post_processor = _bos_in_front(tokenizer, "<s>")
    return Tiny(tokenizer, "<s>", "</s>", None, True, "llama", None, scores, names)


def gemma4(vocab=320):
    """BPE with byte fallback, U+2581 for spaces but none in front, <bos> in front; ids 0..4 as in the real one."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    table, merges, scores = _pieces(names, vocab, prefix=False)
    tokenizer = Tokenizer(models.BPE(table, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    _special(tokenizer, names)
    tokenizer.post_processor = _bos_in_front(tokenizer, "<bos>")
    return Tiny(tokenizer, "<bos>", "<eos>", "<pad>", True, "gemma4", None, scores, names)
