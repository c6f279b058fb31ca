"""Random templates for tools/template_compare.py: expressions and statements over the context of template_snippets.py. Most are
sensible, so that they get far; the rest goes wrong in every way."""
import random

NAMES = ["name", "empty", "text", "lines", "uni", "quote", "html", "csv", "spaced", "digits", "number_text", "n", "z", "neg", "big", "f", "pi", "t",
         "no", "nil", "nums", "mixed", "words", "nested", "void", "d", "edict", "users", "messages", "missing", "x", "y", "ns"]
TEXTS = ["'a'", "'A'", "' '", "','", "''", "'é日'", "'\\n'", "'%s'", "'{}'", "'b c'", "'<x>'", "'0x1f'", "'3.5'", "\"it's\"", "'name'", "'role'", "'-'"]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "10", "2.5", "0.1", "-3.75", "1e3", "100", "1e16", "0.5"]
LISTS = ["[1, 2, 3]", "[]", "['b', 'a', 'C']", "(1, 'a')", "[none, true]", "{'a': 1, 'b': [2]}", "{}", "range(4)", "range(1, 9, 3)", "[[1, 'x'], [2, 'y']]", "(2,)"]
METHODS = ["strip()", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "split()", "split(',')", "split(' ', 1)", "rsplit('b', 1)", "splitlines()",
           "startswith('a')", "endswith(('a', '!'))", "replace('a', 'X')", "replace('l', '', 1)", "find('a')", "rfind('o')", "count('l')", "join(words)", "join(['p', 'q'])",
           "isdigit()", "isalpha()", "isspace()", "islower()", "istitle()", "isalnum()", "strip('aAH ')", "lstrip('ab')", "rstrip('\\n!')", "removeprefix('A')", "removesuffix('a')",
           "zfill(5)", "center(9, '*')", "ljust(6)", "rjust(6)", "partition(',')", "rpartition(' ')", "items()", "keys()", "values()", "get('a')", "get('b', 0)", "get('name')",
           "index('a')", "index(1)", "count(1)", "copy()", "append(1)", "update({})", "format(1, 'b', n=2)", "expandtabs(4)", "casefold()", "encode", "x", "a", "b", "name", "role", "items", "content", "0", "1"]
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "count", "first", "last", "list", "string", "int", "float", "abs", "round", "round(1)", "round(-1)", "round(2, 'floor')",
           "join", "join(', ')", "join('-', attribute='name')", "default('dd')", "d('q', true)", "replace('a', 'b')", "reverse", "reverse | list", "sort", "sort(reverse=true)", "sort(attribute='name')",
           "unique | list", "map('upper') | list", "map(attribute='name') | list", "map(attribute=0) | list", "map('int') | list", "map('string') | join('+')", "select | list", "select('string') | list",
           "reject('number') | list", "selectattr('name') | list", "selectattr('age', 'gt', 26) | map(attribute='name') | list", "rejectattr('active') | list", "min", "max", "sum", "sum(start=1)", "items | list",
           "dictsort", "dictsort(by='value')", "groupby('age')", "groupby(0) | list", "batch(2) | list", "batch(2, 'f') | list", "slice(2) | list", "indent", "indent(2, true)", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)",
           "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "escape", "e", "safe", "format('z', 1)", "center(20)", "truncate(8)", "truncate(9, true, '~', 0)", "wordcount", "attr('name')", "attr('upper')", "forceescape", "last | upper", "first | default('none')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "callable", "true", "false", "odd", "even", "divisibleby 3", "divisibleby(2)",
         "in [1, 'a', none]", "in nums", "in text", "eq 1", "ne 'a'", "lt 5", "ge 2", "equalto name", "sameas none", "lower", "upper", "escaped", "gt 'b'"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "**"]
GARBAGE = ["{{", "}}", "{%", "%}", "{#", "#}", "{%-", "-%}", "{{-", "-}}", "'", "\"", "(", ")", "[", "]", "{", "}", "|", ".", ",", "\n", "  ", "if", "else", "endif", "for", "in", "endfor", "set", "x", "1", "=", "is", "not", "é", "\\", "+", "~", "raw", "endraw"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    def atom(self):
        return self.pick([lambda: self.pick(NAMES), lambda: self.pick(NAMES), lambda: self.pick(NAMES), lambda: self.pick(TEXTS), lambda: self.pick(NUMBERS),
                          lambda: self.pick(LISTS), lambda: self.pick(["true", "false", "none"])])()

    def bound(self, depth):
        return self.pick(["", "", "1", "-1", "2", "-2", "0", "n"]) if self.chance(0.9) else self.expression(depth - 1)

    def slice(self, depth):
        parts = [self.bound(depth), self.bound(depth)]
        if self.chance(0.4):
            parts.append(self.pick(["", "-1", "2", "1", "-2"]))
        return "[" + ":".join(parts) + "]"

    def expression(self, depth):
        if depth <= 0 or self.chance(0.15):
            return self.atom()
        kind = self.random.randrange(14)
        inner = lambda: self.expression(depth - 1)
        if kind == 0:
            return f"{inner()}.{self.pick(METHODS)}"
        if kind in (1, 2):
            return f"({inner()}).{self.pick(METHODS)}"
        if kind in (3, 4, 5):
            return f"{inner()} | {self.pick(FILTERS)}"
        if kind == 6:
            return f"({inner()} | {self.pick(FILTERS)})"
        if kind == 7:
            return f"({inner()} {self.pick(BINARY[:-1])} {inner()})" if self.chance(0.95) else f"{self.pick(['2', '10', '0.5', 'n', 'z'])} ** {self.pick(['0', '2', '3', '-1', '0.5', 'neg'])}"
        if kind == 8:
            return f"{inner()} {self.pick(BINARY[:-1])} {inner()}"
        if kind == 9:
            return f"{inner()} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind == 10:
            return f"({inner()} if {inner()} else {inner()})" if self.chance(0.8) else f"({inner()} if {inner()})"
        if kind == 11:
            return f"({inner()}){self.slice(depth)}" if self.chance(0.5) else f"({inner()})[{inner()}]"
        if kind == 12:
            return self.pick([f"not {inner()}", f"-{inner()}", f"[{inner()}, {inner()}]", f"({inner()}, {inner()})", f"{{'k': {inner()}, 'a': {inner()}}}", f"({inner()})"])
        return f"'%s|%r' % ({inner()}, {inner()})" if self.chance(0.5) else f"'{{}} {{!r}}'.format({inner()}, {inner()})"

    # Expressions of a known type, so that most of them succeed.

    def text(self, depth):
        if depth <= 0:
            return self.pick(["name", "text", "lines", "uni", "quote", "html", "csv", "spaced", "digits", "number_text", "empty", "users[0].name", "d.C", "messages[1].role"] + TEXTS)
        t, n, a = lambda: self.text(depth - 1), lambda: self.number(depth - 1), lambda: self.anything(depth - 1)
        return self.pick([
            lambda: f"({t()} + {t()})", lambda: f"({t()} ~ {a()})", lambda: f"{t()}.{self.pick(['strip()', 'upper()', 'lower()', 'title()', 'capitalize()', 'swapcase()', 'lstrip()', 'rstrip()', 'casefold()'])}",
            lambda: f"{t()}.replace({t()}, {t()})", lambda: f"{t()}.strip({t()})", lambda: f"{t()}[{n()} | int:]", lambda: f"{t()}[:{self.small()}]", lambda: f"{t()}[{self.small()}:{self.small()}:{self.pick(['1', '2', '-1', '-2'])}]",
            lambda: f"({a()} | string)", lambda: f"({a()} | default({t()}))", lambda: f"({self.list(depth - 1)} | join({t()}))", lambda: f"({a()} | tojson)", lambda: f"({t()} | {self.pick(['trim', 'upper', 'title', 'capitalize', 'indent', 'indent(2, true)', 'escape', 'safe', 'reverse', 'center(12)', 'truncate(7, true, leeway=0)', 'string', 'first | default(name)'])})",
            lambda: f"({t()} if {self.boolean(depth - 1)} else {t()})", lambda: f"({t()} * {self.small()})", lambda: f"{t()}.join({t()})", lambda: f"({t()}.split({self.pick(TEXTS[:4])}) | last)", lambda: f"'%s:%r' % ({a()}, {t()})", lambda: f"'%5d|%-6.2f|%x' % ({n()} | int, {n()}, {self.small()} | abs)",
            lambda: f"'{{!r:>8}}/{{:<6}}'.format({t()}, {t()})", lambda: f"{t()}.{self.pick(['center', 'ljust', 'rjust'])}(9, '*')", lambda: f"{t()}.removeprefix({t()})", lambda: f"({t()} | replace({t()}, {t()}, {self.pick('012')}))", lambda: f"({self.dict(depth - 1)}.get({t()}, {t()}) | string)",
        ])()

    def small(self):
        return self.pick(["0", "1", "2", "3", "-1", "-2", "n", "z"])

    def number(self, depth):
        if depth <= 0:
            return self.pick(["n", "z", "neg", "f", "pi", "users[0].age", "d.b"] + NUMBERS)
        t, n = lambda: self.text(depth - 1), lambda: self.number(depth - 1)
        return self.pick([
            lambda: f"({n()} {self.pick('+-*')} {n()})", lambda: f"({n()} {self.pick(['/', '//', '%'])} {self.pick(['2', '3', '-7', '2.5', 'n'])})", lambda: f"({t()} | length)", lambda: f"({self.list(depth - 1)} | length)", lambda: "({} | {})".format(n(), self.pick(['abs', 'round', 'round(1)', 'round(2)', 'int', 'float', "round(1, 'floor')"])),
            lambda: f"{t()}.{self.pick(['find', 'rfind', 'count'])}({t()})", lambda: f"({t()} | int)", lambda: f"({t()} | float(1.5))", lambda: f"(-{n()})", lambda: f"({self.numbers(depth - 1)} | {self.pick(['sum', 'min | default(1)', 'max | default(2)'])})", lambda: f"({t()} | wordcount)", lambda: f"({n()} if {self.boolean(depth - 1)} else {n()})",
        ])()

    def numbers(self, depth):
        return self.pick(["nums", "range(5)", "[]", "(1, 2.5)", f"[{self.number(depth)}, {self.number(depth)}]", "users | map(attribute='age') | list", "nums[::-1]"])

    def boolean(self, depth):
        if depth <= 0:
            return self.pick(["t", "no", "nil is none", "x is defined", "nums", "empty", "void"])
        t, n, a = lambda: self.text(depth - 1), lambda: self.number(depth - 1), lambda: self.anything(depth - 1)
        return self.pick([
            lambda: f"({n()} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {n()})", lambda: f"({t()} {self.pick(['<', '>=', '==', '!=', 'in', 'not in'])} {t()})", lambda: f"({a()} {self.pick(['in', 'not in'])} {self.list(depth - 1)})", lambda: f"({a()} == {a()})", lambda: f"(not {self.boolean(depth - 1)})",
            lambda: f"({self.boolean(depth - 1)} {self.pick(['and', 'or'])} {self.boolean(depth - 1)})", lambda: f"({a()} is {self.pick(['', 'not '])}{self.pick(['defined', 'none', 'string', 'number', 'integer', 'float', 'boolean', 'mapping', 'sequence', 'iterable', 'callable', 'true', 'false', 'upper', 'lower'])})",
            lambda: f"({n()} | int is {self.pick(['odd', 'even', 'divisibleby 3'])})", lambda: f"{t()}.{self.pick(['isdigit', 'isalpha', 'isalnum', 'isspace', 'isupper', 'islower', 'istitle', 'isascii', 'isnumeric', 'isidentifier', 'isprintable'])}()", lambda: f"{t()}.{self.pick(['startswith', 'endswith'])}" + "(" + self.pick([t(), "('a', name)"]) + ")",
        ])()

    def list(self, depth):
        if depth <= 0:
            return self.pick(["nums", "mixed", "words", "nested", "void", "users", "messages"] + LISTS)
        t, l, n = lambda: self.text(depth - 1), lambda: self.list(depth - 1), lambda: self.number(depth - 1)
        return self.pick([
            lambda: f"{t()}.split()", lambda: f"{t()}.split({self.pick(TEXTS[:4])})", lambda: f"{t()}.rsplit({self.pick(TEXTS[:4])}, 1)", lambda: f"{t()}.splitlines()", lambda: f"({l()} | list)", lambda: f"[{self.anything(depth - 1)}, {self.anything(depth - 1)}]", lambda: f"({l()} | list + [{t()}])", lambda: f"({l()} | list)[{self.small()}:]", lambda: f"({l()} | list)[::-1]",
            lambda: f"({l()} | reverse | list)", lambda: f"(words | sort{self.pick(['', '(reverse=true)', '(case_sensitive=true)'])})", lambda: f"(users | sort(attribute='{self.pick(['name', 'age', 'age,name'])}'))", lambda: f"({t()} | list)", lambda: f"({l()} | map('{self.pick(['string', 'default', 'list', 'tojson', 'upper', 'length'])}') | list)" if self.chance(.8) else f"({l()} | first | default([]) | list)",
            lambda: f"(users | map(attribute='{self.pick(['name', 'age', 'tags', 'address.city', 'tags.0'])}'{self.pick(['', ', default=0'])}) | list)", lambda: f"({l()} | {self.pick(['select', 'reject'])}('{self.pick(['string', 'number', 'defined', 'none', 'mapping', 'sequence', 'true'])}') | list)", lambda: f"(users | selectattr('age', '{self.pick(['eq', 'lt', '>=', 'ne'])}', {n()}) | list)",
            lambda: f"(words | unique | list)", lambda: f"({l()} | batch({self.pick('123')}{self.pick(['', ', 0'])}) | list)", lambda: f"({l()} | slice({self.pick('123')}) | list)", lambda: f"({self.dict(depth - 1)} | {self.pick(['items | list', 'list'])})", lambda: f"({self.dict(depth - 1)}.{self.pick(['keys', 'values', 'items'])}() | list)", lambda: f"(d | dictsort{self.pick(['', '(true)', '(reverse=true)'])})", lambda: f"(users | groupby('age'))",
        ])()

    def dict(self, depth):
        return self.pick(["d", "edict", "users[1]", "messages[0]", "d.a", "{'k': " + self.anything(depth - 1) + ", 'a': 1}", "dict(a=" + self.anything(depth - 1) + ", b=2)", "{1: 'one', 'x': none, true: 2}"])

    def anything(self, depth):
        if depth <= 0:
            return self.atom()
        return self.pick([self.text, self.text, self.number, self.boolean, self.list, self.dict])(depth - self.random.randrange(2))

    def white(self):
        return self.pick(["", "", " ", "\n", "\n  ", "  \n"])

    def tag(self, body):
        return "{%" + self.pick(["", "", "-", "+"]) + f" {body} " + self.pick(["", "", "-"]) + "%}"

    def print(self, depth):
        return "{{" + self.pick(["", "", "-"]) + f" {self.expression(depth)} " + self.pick(["", "", "-"]) + "}}"

    def body(self, depth, in_loop):
        return "".join(self.white() + self.statement(depth, in_loop) + self.white() for _ in range(self.random.randrange(1, 3)))

    def statement(self, depth, in_loop):
        if depth <= 0 or self.chance(0.3):
            return self.print(2) if self.chance(0.2) else "{{ " + self.anything(2) + " }}"
        kind = self.random.randrange(12)
        inner = lambda: self.body(depth - 1, in_loop)
        e = lambda: self.expression(2) if self.chance(0.25) else self.anything(2)
        if kind in (0, 1):
            iterable = self.pick(["nums", "words", "nested", "d", "users", "messages", "range(3)", "d.items()", e()])
            target = "k, v" if ".items" in iterable or "nested" in iterable else self.pick(["x", "y", "m", "name"])
            test = f" if {e()}" if self.chance(0.2) else ""
            otherwise = self.tag("else") + inner() if self.chance(0.2) else ""
            shown = self.pick(["{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}", "{{ loop.previtem }}", "{{ loop.nextitem }}", "{{ x }}", "{{ k }}{{ v }}", "{{ loop.cycle(1, 2) }}", "{{ loop.changed(x) }}", ""])
            return self.tag(f"for {target} in {iterable}{test}") + shown + self.body(depth - 1, True) + otherwise + self.tag("endfor")
        if kind in (2, 3):
            other = self.tag(f"elif {e()}") + inner() if self.chance(0.3) else ""
            other += self.tag("else") + inner() if self.chance(0.5) else ""
            return self.tag(f"if {e()}") + inner() + other + self.tag("endif")
        if kind in (4, 5):
            return self.tag(f"set {self.pick(['x', 'y', 'name', 'nums', 'q', 'x, y'])} = {e()}")
        if kind == 6:
            return self.tag("set ns = namespace(a=1, b=[])") + self.tag(f"set ns.{self.pick('abc')} = {e()}") + "{{ ns.a }}{{ ns.c }}"
        if kind == 7:
            name = self.pick(["x", "y", "q"])
            return self.tag(f"set {name}{self.pick(['', ' | upper', ' | trim'])}") + inner() + self.tag("endset") + "{{ " + name + " }}"
        if kind == 8:
            call = self.pick(["f(1)", "f(1, 2)", "f(a=nums)", "f()", f"f({e()})", "f(1, 2, 3)", "f(z=1)"])
            return self.tag(f"macro f({self.pick(['a', 'a, b=2', 'x, y=x', ''])})") + self.body(depth - 1, False) + "{{ a }}{{ b }}" + self.tag("endmacro") + "{{ " + call + " }}"
        if kind == 9:
            return self.tag(f"filter {self.pick(['upper', 'trim', 'indent', 'title', 'length', 'replace(x, y)'])}") + inner() + self.tag("endfilter")
        if kind == 10:
            if in_loop and self.chance(0.7):
                return self.tag(f"if {e()}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
            return self.tag(f"with x = {e()}, y = x") + inner() + self.tag("endwith")
        return self.tag("macro g(a)") + "<{{ caller(a) if caller is defined }}>" + self.tag("endmacro") + self.tag(f"call(x) g({e()})") + self.body(depth - 1, False) + self.tag("endcall")

    def template(self):
        kind = self.random.random()
        if kind < 0.45:
            return "{{ " + self.anything(self.random.randrange(2, 5)) + " }}"
        if kind < 0.6:
            return "{{ " + self.expression(self.random.randrange(1, 5)) + " }}"
        source = self.body(self.random.randrange(1, 4), False)
        if kind < 0.9:
            return source
        # Damage it.
        for _ in range(self.random.randrange(1, 3)):
            at = self.random.randrange(len(source) + 1)
            cut = self.random.randrange(4)
            source = source[:at] + self.pick(GARBAGE + [""] * 10) + source[at + cut:]
        return source
