"""Random C++ programs for the passes: loops in shapes that are easily compiled wrongly.

Pointers overlap, strides are negative or known at run time only, counters of 8 to 32 bits wrap around, loops run not at
all, are left by break, return, goto, longjmp() or an exception, and call functions that write to what they read. There
are volatile and atomic accesses among the others. The programs have no undefined behaviour: all arithmetic is unsigned,
or of small numbers, all memory is of one type, and each index is inside of it.
"""

import random

SIZE = 1 << 17  # elements of an array, of 32 bits; an index of 16 bits is always inside
ROOM = 1 << 12  # elements in front of and behind it

PRELUDE = """#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
using word = unsigned;
struct failure { int code; };
static jmp_buf back;
static word* memory;
static size_t calls;
__attribute__((noinline)) static word touch(word* at) { ++calls; return *at = *at * 5 + 1; }
__attribute__((noinline)) static word may_throw(word x) { if (x % 9973 == 7) throw failure{1}; return x ^ 3; }
__attribute__((noinline)) static word may_jump(word x) { if (x % 9973 == 9) longjmp(back, 1); return x ^ 5; }
__attribute__((noinline)) static word same(word x) { ++calls; return x; }
"""


class Program:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        return self.random.choice(choices)

    def below(self, limit):
        return self.random.randrange(limit)

    def place(self, index):
        """An element of one of the overlapping arrays; `index` is an expression below SIZE / 2."""
        name = self.pick("a", "b", "c")
        kind = self.below(8)
        if kind < 4:
            return f"{name}[{index} + {self.below(5)}]"
        if kind == 4:
            return f"{name}[(unsigned short)({index} * {self.pick(1, 2, 3)} + {self.pick(0, 7, 60000, 65535)}u)]"
        if kind == 5:
            return f"{name}[(unsigned char)({index} + {self.pick(0, 250)}u)]"
        if kind == 6:  # a gather
            return f"{name}[x[{index}] {self.pick('', '* 2u', '+ 17u')}]"
        return f"{name}[{self.position(index)}]"

    def position(self, index):
        """Computed from what the loop reads, or has."""
        read = f"{self.pick('a', 'b', 'c')}[{index}]"
        return self.pick(f"{read} & 0xffffu", f"(word)(({index}) * 2654435761u) >> 16",
                         f"((x[{index}] & 1) != 0 ? x[{index}] * 2u : (word)({index}) ^ 5u) & 0xffffu",
                         f"({index}) * {self.pick(700, 1025)}u % 65521u", f"(word)({read} / 7 + x[{index}]) & 0xffffu",
                         f"({read} % ((word)n | 1)) & 0xffffu")

    def value(self, index, depth=0):
        kind = self.below(10 if depth < 2 else 3)
        if kind < 3:
            return self.place(index)
        if kind == 3:
            return f"(word)({index})"
        if kind == 4:
            return f"__atomic_load_n(&{self.place(index)}, __ATOMIC_{self.pick('RELAXED', 'ACQUIRE', 'SEQ_CST')})"
        if kind == 5:
            return f"*(volatile word*)&{self.place(index)}"
        left, right = self.value(index, depth + 1), self.value(index, depth + 1)
        return f"({left} {self.pick('+', '-', '*', '^', '&', '|')} {right})"

    def statement(self, index, depth=0):
        kind = self.below(20)
        if kind < 5:
            return f"{self.place(index)} {self.pick('=', '+=', '^=')} {self.value(index)};"
        if kind < 8:
            return f"h = h * 31 + {self.value(index)};"
        if kind == 8:
            return f"if ({self.value(index)} % {self.pick(2, 3, 1000)} == 0) {{ {self.statement(index, depth)} }}"
        if kind == 9:
            way = self.pick("break", "return h", "goto end", "continue")
            return f"if ({self.value(index)} % {self.pick(1009, 65521)} == 5) {way};"
        if kind == 10:
            return f"h ^= touch(&{self.place(index)});"
        if kind == 11:
            return f"h += {self.pick('may_throw', 'may_jump', 'same')}({self.value(index)});"
        if kind == 12:
            way = self.pick("", "break;", "throw;")
            return f"try {{ h += may_throw({self.value(index)}); }} catch (const failure&) {{ h ^= 77; {way} }}"
        if kind == 13:
            return f"m = m > {self.value(index)} ? m : (word)({index});"
        if kind == 14:
            return f"__atomic_fetch_add(&{self.place(index)}, h, __ATOMIC_{self.pick('RELAXED', 'SEQ_CST')});"
        if kind == 15:
            return f"*(volatile word*)&{self.place(index)} = h;"
        if kind == 16:
            return f"{{ word* const t = a; a = b; b = t; }}"
        if kind < 19 and depth < 2:
            return self.loop(depth + 1, index)
        return f"{self.place(index)} = {self.place(index)};"

    def body(self, index, depth):
        return " ".join(self.statement(index, depth) for _ in range(1 + self.below(3)))

    def loop(self, depth=0, outer="0"):
        """`n` is below SIZE / 8, and may be 0 or small. An inner loop goes at most 16 steps."""
        i = f"i{depth}"
        limits = ["n", "n / 2", "n - n % 8", "(n < 3 ? 0 : n - 3)"] if depth == 0 else ["5", "(n & 15)", "16"]
        limit = self.pick(*limits)
        usual = f"for (size_t {i} = 0; {i} < {limit}; ++{i})"
        used = i if depth == 0 else f"({outer} + {i})"
        body = self.body(used, depth)
        count = self.pick("size_t", "unsigned", "int", "long", "unsigned long long")
        kind = self.below(11)
        if kind == 0:
            return f"for ({count} {i} = 0; {i} < ({count})({limit}); {i} += {self.pick(1, 1, 2, 3)}) {{ {body} }}"
        if kind == 1:
            count, step = self.pick("int", "long"), self.pick(1, 1, 2, 5)
            return f"for ({count} {i} = (int)({limit}) - 1; {i} >= 0; {i} -= {step}) {{ {body} }}"
        if kind == 2:  # wraps around
            start = self.pick("0xffffff00u", "0xffffffffu", "0xfffff000u")
            body = self.body(f"({i} - {start})" if depth == 0 else f"({outer} + (unsigned)({i} - {start}))", depth)
            return f"for (unsigned {i} = {start}; {i} != {start} + (unsigned)({limit}); ++{i}) {{ {body} }}"
        if kind == 3:
            return f"{{ size_t {i} = 0; do {{ {body} }} while (++{i} < {limit}); }}"
        if kind == 4:  # a stride that only the caller knows
            return (f"{{ long j = s < 0 ? (long)({limit}) * 3 : 0; for (size_t {i} = 0; {i} < {limit}; ++{i}, j += s) "
                    f"{{ h += a[j]; b[j + 1] ^= h; {body} }} }}")
        if kind == 5:
            return (f"{{ word* p = {self.pick('a', 'b')}; word* const q = p + {limit}; size_t {i} = 0; "
                    f"for (; p < q; ++p, ++{i}) {{ h = h * 7 + *p; p[{self.pick(0, 1, 2, 100)}] += h; {body} }} }}")
        if kind == 6:
            body = body.replace("continue;", "break;")
            return (f"{{ word* const first = a; word* p = a + {limit}; size_t {i} = 0; "
                    f"while (p != first) {{ --p; *p += b[{i}]; {body} ++{i}; }} }}")
        if kind == 7:  # counters of 16 bits
            start = self.pick(0, 65000, 300) if depth == 0 else 65530
            body = self.body(i if depth == 0 else f"({outer} + ({i} & 15))", depth)
            return f"for (unsigned short {i} = {start}; {i} != (unsigned short)({limit}); ++{i}) {{ {body} }}"
        if kind == 8:
            return f"for (size_t {i} = 0; {i} < {limit} && h % 65521 != 3; ++{i}) {{ {body} }}"
        if kind == 9:  # a position that is carried along
            body = body + f" h += {self.pick('a', 'b')}[r >> {self.pick(16, 17, 20)}];"
            step = self.pick("r = r * 1664525u + 1013904223u;", "r ^= r << 13; r ^= r >> 17; r ^= r << 5;", "r = r * 5u + x[" + used + "];")
            return f"{{ word r = (word)n + 7; {usual} {{ {body.replace('continue;', 'break;')} {step} }} }}"
        wish = self.pick("vectorize(enable)", "unroll_count(4)", "interleave_count(2)")
        return f"\n#pragma clang loop {wish}\n{usual} {{ {body} }}"

    def function(self, number):
        loops = "\n  ".join(self.loop() for _ in range(1 + self.below(3)))
        parameters = "(word* a, word* b, word* c, const unsigned short* x, size_t n, long s)"
        return (f"__attribute__((noinline)) static word f{number}{parameters} {{\n"
                f"  word h = {number}, m = 0;\n  {loops}\nend:\n  return h ^ m * 31;\n}}\n"
                f"__attribute__((noinline)) static word run{number}{parameters} {{\n"
                f"  if (setjmp(back) != 0) return 99;\n"
                f"  try {{ return f{number}(a, b, c, x, n, s); }} catch (const failure&) {{ return 98; }}\n}}\n")

    def call(self, number):
        places = ", ".join(f"memory + {self.pick(0, 0, 1, 8, 100, 1024, 3000)}" for _ in range(3))
        n = self.pick(SIZE // 8, SIZE // 8, SIZE // 8 - 1, SIZE // 8, 5000, 130, 9, 1, 0)
        return f"  h = h * 16777619u + run{number}({places}, x, same({n}), {self.pick(1, 3, -1, -3, -2, 0)});\n"

    def text(self):
        functions = "".join(self.function(number) for number in range(4))
        calls = "".join(self.call(number) for number in range(4) for _ in range(2))
        return (PRELUDE + functions + "int main() {\n"
                f"  const size_t size = {SIZE + 2 * ROOM};\n"
                "  word* const all = (word*)malloc(size * sizeof(word));\n"
                f"  unsigned short* const x = (unsigned short*)malloc({SIZE} * sizeof *x);\n"
                "  word h = 0;\n"
                f"  memory = all + {ROOM};\n"
                "  for (size_t i = 0; i < size; ++i) all[i] = (word)(i * 2654435761u >> 7);\n"
                f"  for (size_t i = 0; i < {SIZE}; ++i) x[i] = (unsigned short)(i * 40503 >> 3);\n"
                f"{calls}  for (size_t i = 0; i < size; ++i) h = h * 31 + all[i];\n"
                "  printf(\"%x %zu\\n\", h, calls);\n  free(all);\n  free(x);\n  return 0;\n}\n")
