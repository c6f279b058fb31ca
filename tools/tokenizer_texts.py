"""Mixed texts that are hard on tokenizers, always the same: prose is given, the rest is generated from a seed."""

import random
import unicodedata

CODE = '''#include <vector>
template <typename T>\nstatic inline T clamp(const T& v, T lo, T hi) { return v < lo ? lo : (v > hi ? hi : v); }
\tint main(int argc, char **argv)\r\n\t{\r\n\t\tprintf("%08x\\n", 0xDEADBEEF);\r\n\t\treturn 0;\r\n\t}
def quicksort(xs):\n    """Sorts."""\n    if len(xs) <= 1:\n        return xs\n    p, *rest = xs
    return quicksort([x for x in rest if x < p]) + [p] + quicksort([x for x in rest if x >= p])\n\n\n
{"id": 12345, "name": "caf\u00e9", "tags": ["a", "b"], "nested": {"pi": 3.14159, "big": 1234567890123}}
SELECT u.name, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.age >= 18 GROUP BY 1;
<div class="x" style="color:#ff00aa">&nbsp;<a href='https://example.org/?q=1&amp;r=2'>It's</a></div><!-- c -->
let s = `don't ${a?.b ?? c} won't`; // we'LL see, I'VE, they'RE, he'S, CAN'T, I'm, she'd 'tis 'em
'''

SCRIPTS = {
    "han": [(0x4E00, 0x9FA5), (0x3400, 0x4DB5), (0x3001, 0x3002), (0xFF01, 0xFF0F)],
    "kana": [(0x3041, 0x3096), (0x30A1, 0x30FA), (0x30FC, 0x30FC), (0x4E00, 0x4FFF)],
    "hangul": [(0xAC00, 0xD7A3), (0x20, 0x20)],
    "thai": [(0x0E01, 0x0E3A), (0x0E40, 0x0E4E), (0x0E50, 0x0E59)],
    "arabic": [(0x0621, 0x064A), (0x064B, 0x0652), (0x0660, 0x0669), (0x20, 0x20), (0x060C, 0x060C), (0x061F, 0x061F)],
    "hebrew": [(0x05D0, 0x05EA), (0x05B0, 0x05BD), (0x20, 0x20)],
    "devanagari": [(0x0904, 0x0939), (0x093E, 0x094D), (0x0966, 0x096F), (0x20, 0x20), (0x0964, 0x0965)],
    "cyrillic": [(0x0410, 0x044F), (0x20, 0x20)],
    "greek": [(0x0391, 0x03A1), (0x03A3, 0x03C9), (0x1F00, 0x1F15), (0x20, 0x20)],
    "latin": [(0x00C0, 0x024F), (0x1E00, 0x1EFF), (0x61, 0x7A), (0x20, 0x20)],
    "math": [(0x2200, 0x22FF), (0x1D400, 0x1D4FF), (0x2070, 0x209C), (0x00B2, 0x00B3), (0x00BC, 0x00BE), (0x2160, 0x2188)],
    "symbols": [(0x2190, 0x21FF), (0x2500, 0x25FF), (0x2600, 0x27BF), (0x24B6, 0x24E9), (0x1F130, 0x1F189)],
    "ascii": [(0x20, 0x7E)],
    "controls": [(0x00, 0x20), (0x7F, 0xA0), (0x2000, 0x200F), (0x2028, 0x202F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)],
}
EMOJI = [
    "\U0001F600", "\U0001F44D\U0001F3FD", "\U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466", "\u2764\ufe0f",
    "\U0001F1E9\U0001F1EA", "\U0001F3F4\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F", "1\ufe0f\u20e3",
    "\U0001F9D1\U0001F3FF\u200d\U0001F680", "\U0001FAE8", "\u263a", "\U0001F575\U0001F3FB\u200d\u2642\ufe0f",
]  # fmt: skip
SPACES = [" ", "  ", "    ", "\t", "\n", "\r\n", "\r", "\n\n\n", "\x0b", "\x0c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003",
          "\u2009", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", " \n ", "\t \t", " \xa0 "]  # fmt: skip
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "    ", "<\uff5cuser\uff5c>", "<bos>", "<s>", "</s>",
            "<unk>", "<tool>", "<|turn>", "<0x41>", "<pad", "<|im_end", "|>", "\u2581"]  # fmt: skip


def random_text(rng, ranges, length):
    weights = [high - low + 1 for low, high in ranges]
    total = sum(weights)
    out = []
    for _ in range(length):
        # Half of the characters from any range with equal chance, so that single characters (spaces) come up.
        if rng.random() < 0.5:
            low, high = rng.choice(ranges)
        else:
            low, high = rng.choices(ranges, weights)[0] if total else ranges[0]
        out.append(chr(rng.randint(low, high)))
    return "".join(out)


def every_character():
    """Blocks of all code points, each once, shuffled between letters so that every class border occurs."""
    rng = random.Random(5)
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assigned = [c for c in codes if unicodedata.category(chr(c)) not in ("Cn", "Co")]
    rest = rng.sample([c for c in codes if unicodedata.category(chr(c)) in ("Cn", "Co")], 20000)
    mixed = assigned + rest
    rng.shuffle(mixed)
    for start in range(0, len(mixed), 2000):
        yield "".join(f"{rng.choice(['a', ' ', '1', '!', ''])}{chr(c)}" for c in mixed[start : start + 2000])


def runs(scale=1):
    for unit in ["a", " ", "\n", "\r\n", "\t", "1", "ab", "aA", "\u4e00", "\u00e9", "e\u0301", "\u0e01", "!", "-", "'", "_", "=",
                 "\U0001F600", "\u3000", "\xa0", "\u2581", " \n", "a ", "A1", "\x00"]:  # fmt: skip
        for length in (1, 2, 3, 31, 32, 33, 50, 257, 1000, 5000 * scale):
            yield unit * length
            yield "x" + unit * length + "y"


def generated(scale=1):
    """Texts as str; `scale` multiplies the amount."""
    rng = random.Random(42)
    words = CODE.split(" ")
    yield CODE
    for _ in range(150 * scale):
        yield " ".join(rng.choice(words) for _ in range(rng.randint(1, 400)))
    for name, ranges in SCRIPTS.items():
        for _ in range(12 * scale):
            yield random_text(rng, ranges, rng.randint(1, 1500))
    mixed = list(SCRIPTS.values())
    for _ in range(100 * scale):  # all scripts in one text
        yield "".join(random_text(rng, rng.choice(mixed), rng.randint(1, 12)) for _ in range(rng.randint(1, 200)))
    for _ in range(80 * scale):  # emoji, spaces and special tokens between words
        parts = []
        for _ in range(rng.randint(1, 200)):
            parts.append(rng.choice([rng.choice(EMOJI), rng.choice(SPACES), rng.choice(SPECIALS), rng.choice(words), "word", "It's"]))
        yield "".join(parts)
    for _ in range(60 * scale):  # combining marks, decomposed and in wrong order
        base = random_text(rng, SCRIPTS["latin"] + SCRIPTS["greek"] + SCRIPTS["hangul"] + SCRIPTS["hebrew"], rng.randint(1, 400))
        text = unicodedata.normalize("NFD", base)
        marks = [chr(rng.randint(0x300, 0x36F)) for _ in range(50)]
        yield "".join(c + (rng.choice(marks) * rng.randint(0, 3) + rng.choice(marks) if rng.random() < 0.2 else "") for c in text)
    for digits in range(1, 30):
        yield " ".join(str(rng.randrange(10**digits)) for _ in range(40)) + " 1,234,567.89 3\u00b2 \u0663\u0664\u0665\u0666"
    yield from runs(scale)
    yield from every_character()


def broken(scale=1):
    """Byte strings that are not UTF-8."""
    rng = random.Random(7)
    yield b"\xff\xfe\xfd abc \xc3( \xe2\x82 \xf0\x9f\x98 end\xe2"
    yield b"\xed\xa0\x80 surrogate \xc0\xaf overlong \xf4\x90\x80\x80 \xf8\x88\x80\x80\x80"
    good = "Zwölf Boxkämpfer \u4e2d\u6587 \U0001F600 e\u0301 " .encode()
    for _ in range(200 * scale):
        data = bytearray(good * rng.randint(1, 8))
        for _ in range(rng.randint(1, 20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        yield bytes(data[: rng.randint(1, len(data))])
    for _ in range(50 * scale):
        yield bytes(rng.randrange(256) for _ in range(rng.randint(1, 500)))


def prose(paths):
    """Each file as a whole, and cut into paragraphs."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        yield text
        for paragraph in text.split("\n\n")[:400]:
            yield paragraph
