"""Random C programs for the passes: loops over arrays that live on the heap, in shapes that they split, guard or leave.

Each program prints a checksum of all that it computed, and has no undefined behaviour: indices are masked, arithmetic is
unsigned or on small doubles, arrays are apart, and elements are read in the type in which they were written last.
"""

import random

SIZE = 1 << 15  # elements of each array: several chunks of 64 KiB
ARRAYS = {"a": "unsigned long", "b": "unsigned", "c": "double", "d": "unsigned short", "e": "unsigned char"}


class Program:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.functions = []

    def pick(self, *choices):
        return self.random.choice(choices)

    def value(self, index, depth=0):
        """An expression of an unsigned long, from elements at or around `index`, which is below SIZE - 4."""
        choice = self.random.randrange(8 if depth < 3 else 4)
        array = self.pick(*ARRAYS)
        if choice < 2:
            return f"(unsigned long)({array}[{index} + {self.random.randrange(4)}])"
        if choice == 2:
            return f"{self.random.randrange(1 << 16)}ul"
        if choice == 3 and self.random.randrange(2) == 0:  # a gather
            return f"(unsigned long)({array}[e[{index}] * {self.pick(1, 3, 100)} + {self.random.randrange(4)}])"
        if choice == 3 and self.random.randrange(3) == 0:  # by two arrays
            return f"(unsigned long)({array}[{self.pick('b', 'a')}[d[{index}] & {SIZE // 2 - 1}] & {SIZE - 1}])"
        if choice == 3:  # irregular
            return f"(unsigned long)({array}[({self.pick('b', 'a')}[{index}] * 7919ul + {index}) & {SIZE - 1}])"
        left, right = self.value(index, depth + 1), self.value(index, depth + 1)
        return f"({left} {self.pick('+', '-', '*', '^', '&', '|')} {right})"

    def store(self, index):
        array = self.pick(*ARRAYS)
        value = self.value(index)
        if array == "c":
            return f"c[{index}] = (double)(({value}) & 0xffff);"
        return f"{array}[{index}] = ({ARRAYS[array]})({value});"

    def statement(self, index):
        choice = self.random.randrange(8)
        if choice < 3:
            return self.store(index)
        if choice < 5:
            return f"h += {self.value(index)};"
        if choice == 5:
            return f"if ({self.value(index)} % 3 == 0) {{ {self.store(index)} }} else h ^= {index};"
        if choice == 6:
            return f"m = m > {self.value(index)} ? m : (unsigned long){index};"
        return f"s += c[{index}] * 0.5;"

    def body(self, index):
        return " ".join(self.statement(index) for _ in range(self.random.randrange(1, 4)))

    def loop(self):
        kind = min(self.random.randrange(22), 16)
        step = self.pick(1, 1, 1, 2, 3, 7)
        word = self.pick("size_t", "unsigned", "int", "long")
        limit = self.pick("n", "n - 5", "n / 2")
        if kind >= 16:
            return self.columns()
        if kind >= 14:
            return self.pointers(limit)
        if kind >= 12:
            return self.rows(limit)
        if kind == 11:
            return self.two_types(limit)
        if kind == 10:  # one array, or two that overlap, of which all is overwritten, or not quite
            value = self.pick("y[i]", "y[i + 1]", "x[i + 3]", "i", "x[b[i] & 255]", "a[i]", f"(h += y[{limit} - 1 - i])")
            place = self.pick("i", "i", "i + 1", "2 * i", f"({limit} - 1 - i)")
            return f"for (size_t i = 0; i < {limit}; ++i) {{ x[{place}] = {value} * 3 + {self.random.randrange(9)}; }}"
        if kind == 9:
            call = self.pick("memmove(x, y", "memmove(y, x", "memcpy(a, x", "memset(x, 3", "memset(d, 77", "memset(c, 0")
            return f"{call}, {limit}); h += x[{limit} / 9] + d[n / 20];"
        if kind == 8:  # all but a part of each element, or of the iterations
            return self.pick(f"for (size_t i = 0; i < {limit}; ++i) ((unsigned*)b)[i] = (unsigned)(h >> (i & 31));",
                             f"for (size_t i = 0; i < {limit}; ++i) {{ if (d[i] & 1) b[i] = 7; }}",
                             f"for (size_t i = 0; i < ({limit}) / 2; ++i) {{ a[2 * i] = i; a[2 * i + 1] = e[i]; }}",
                             f"for (size_t i = 0; i < {limit}; ++i) {{ e[i] = 9; d[i] = e[i + 1]; }}")
        if kind == 0:
            return f"for ({word} i = 0; i < ({word})({limit}); i += {step}) {{ {self.body('i')} }}"
        if kind == 1:
            word = self.pick("int", "long")
            return f"for ({word} i = ({word})({limit}) - 1; i >= 0; i -= {step}) {{ {self.body('i')} }}"
        if kind == 2:
            return (f"for (size_t j = 0; j < n / 16; ++j) for (size_t k = 0; k < {self.pick(3, 8, 12)}; ++k) "
                    f"{{ {self.body('(j * 16 + k)')} }}")
        if kind == 3:
            return f"for (size_t j = 1; j < 200; j += 13) for (size_t k = 0; k < j * 100; ++k) {{ {self.body('k')} }}"
        if kind == 4:
            return (f"for (size_t i = 0; i < {limit}; ++i) {{ {self.body('i')} "
                    f"if ((h & 0xfffff) == {self.random.randrange(1 << 20)}) break; }}")
        if kind == 5:
            return f"{{ size_t i = 0; do {{ {self.body('i')} i += {step}; }} while (i < {limit}); }}"
        if kind == 6:
            return f"{{ size_t left = {limit}; while (left-- > 0) {{ {self.body('left')} if (left % 5 == 1) continue; h += left; }} }}"
        return (f"for (unsigned long *p = a + 4, *q = a + {limit}; p < q; p += {step}) "
                f"{{ h = h * 31 + *p; *p ^= h; {self.body('(size_t)(p - a)')} }}")

    def pointers(self, limit):
        """A table of cells in a ring, in which some places are empty: places are computed, and cells lead to others."""
        place = self.pick("b[i] * 7 & 4095", "(d[i] + i * 31) & 4095", "e[i] * 16", "i * 2654435761u >> 20 & 4095")
        store = self.pick("", "", "q->value += i;", f"t[{self.pick('i & 4095', 'b[i] & 4095')}] = q;", "q->next = q->next->next;", "b[i / 2] ^= 1;")
        once = self.pick(f"h = h * 31 + q->value; {store}", f"h ^= q->next->value; {store}",
                         f"struct cell* r = q->next; if (r->value & 1) h += r->next->value; {store}",
                         f"struct cell* r = (i & 3) ? q : q->next; h += r->next->value + r->value; {store}")
        if self.random.randrange(3) == 0:
            return (f"for (size_t i = 0; i < {limit}; ++i) {{ size_t k = i & {self.pick(1, 3, 7)}; "
                    f"for (struct cell* q = t[{place}]; q != 0 && k > 0; q = q->next, --k) h += q->value; }}")
        return f"for (size_t i = 0; i < {limit}; ++i) {{ struct cell* q = t[{place}]; if (q != 0) {{ {once} }} }}"

    def rows(self, limit):
        """Short inner loops that begin where an array says, or end there, too."""
        array = self.pick("a", "x", "d", "e")
        first = self.pick("d[i]", "d[i]", "e[i] * 16u", "d[b[i] & 1023]", "b[i] & 4095")
        end = self.pick("from + 13", "from + (e[i] & 15)", "from + i % 3", "d[i + 1]")
        work = self.pick(f"h = h * 31 + {array}[at];", f"{array}[at] ^= h;", f"m += {array}[at] & b[at & {SIZE - 1}];")
        if end == "d[i + 1]":  # rows one after the other
            return (f"for (size_t i = 0; i < n; ++i) d[i] = (unsigned short)(i * 3 / 4); "
                    f"for (size_t i = 0; i + 1 < {limit}; ++i) {{ unsigned long sum = 0; "
                    f"for (unsigned at = d[i]; at < d[i + 1]; ++at) sum += a[at]; x[i] = sum; h ^= sum; }}")
        return (f"for (size_t i = 0; i < {limit}; ++i) {{ unsigned from = ({first}) & {SIZE // 2 - 1}; "
                f"for (unsigned at = from; at < {end}; ++at) {{ {work} }} }}")

    def columns(self):
        """Rows, or single elements, that lie as far apart as only the running program knows."""
        at, to = "r * w + j", "(r & 1023) * 8"
        body = self.pick(f"memcpy(x + {to}, a + {at}, 64);", f"memcpy(a + {at}, y + {to}, 64);", f"h += a[{at}];",
                         f"for (size_t k = 0; k < 16; ++k) h = h * 31 + a[{at} + k];", f"x[{at}] ^= h + r;",
                         f"for (size_t k = 16; k > 0; --k) d[{at} + k] ^= (unsigned short)(h >> k);",
                         f"memset(e + {at}, (int)r, 32); h += b[{at}];", f"a[{at}] += b[r]; c[r] = (double)r;",
                         f"h += a[{at}]; if ((h & 0xffff) == 77) break;", f"h += a[{at} + 3] ^ d[{at}] ^ a[{at}];")
        rows = self.pick("(n - 40) / w", "(n - 40) / w", "20", "40")
        step = self.pick("for (size_t r = 0; r < rows; ++r)", "for (size_t r = rows; r-- > 0;)")
        return (f"{{ size_t w = n / {self.pick(60, 41, 200, 600)} + {self.pick(1, 0)}, rows = {rows}; "
                f"for (size_t j = 0; j < {self.pick(2, 9, 17)}; ++j) {step} {{ {body} }} }}")

    def two_types(self, limit):
        """Memory that holds elements of one type, and then, a loop later, of another in their place."""
        old, new = self.pick(("unsigned long", "double"), ("double", "unsigned long"), ("unsigned", "float"), ("unsigned long", "unsigned"))
        ahead = self.random.randrange(4)
        value = self.pick("was[i + {}]", "was[i + {}] + e[i]", "was[i + {}] * 2 + was[i]").format(ahead)
        return (f"{{ {old}* was = w; {new}* is = w;\n"
                f"    for (size_t i = 0; i < {limit}; ++i) was[i] = ({old})(b[i] & 0xffff);\n"
                f"    for (size_t i = 0; i + {ahead} < {limit}; ++i) is[i] = ({new})({value});\n"
                f"    for (size_t i = 0; i + {ahead} < {limit}; i += {self.pick(1, 2)}) h = h * 31 + (unsigned long)is[i]; }}")

    def function(self, number):
        arrays = ", ".join(f"{kind}* restrict {name}" for name, kind in ARRAYS.items())
        loops = "\n  ".join(self.loop() for _ in range(self.random.randrange(2, 5)))
        return (f"__attribute__((noinline)) unsigned long f{number}({arrays}, unsigned long* x, unsigned long* y, void* w, struct cell** t, size_t n) {{\n"
                f"  unsigned long h = {number}, m = 0; double s = 0;\n  {loops}\n"
                "  return h ^ m * 31 ^ (unsigned long)(long)(s / 1024);\n}\n")

    def text(self):
        functions = "".join(self.function(number) for number in range(6))
        allocations = "".join(f"  {kind}* {name} = malloc((size + 16) * sizeof *{name});\n" for name, kind in ARRAYS.items())
        calls = "".join(f"  h = h * 1099511628211ul + f{number}({', '.join(ARRAYS)}, g, g + {self.pick(0, 1, 3, 500, 513, 5000)}, w, t, {self.pick('size', 'size', 'size / 3', '700')});\n"
                        for number in range(6))
        allocations += "  unsigned long* g = malloc((3 * size + 16) * sizeof *g);\n  void* w = malloc(size * sizeof *g);\n"
        allocations += ("  struct cell** t = malloc(4096 * sizeof *t);\n  struct cell* cells = malloc(8192 * sizeof *cells);\n"
                        "  for (size_t i = 0; i < 8192; ++i) cells[i] = (struct cell){&cells[i * 1021 + 7 & 8191], i * 77};\n"
                        "  for (size_t i = 0; i < 4096; ++i) t[i] = i % 5 == 3 ? 0 : &cells[i * 2003 & 8191];\n")
        hashes = "".join(f"  for (size_t i = 0; i < size; ++i) h = h * 31 + (unsigned long)({name}[i]);\n" for name in [*ARRAYS, "g"])
        hashes += "  for (size_t i = 0; i < 8192; ++i) h = h * 31 + cells[i].value + (size_t)(cells[i].next - cells);\n"
        return ("#include <stddef.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
                "struct cell { struct cell* next; unsigned long value; };\n" + functions +
                f"int main(void) {{\n  size_t size = {SIZE};\n  unsigned long h = 0;\n{allocations}"
                "  for (size_t i = 0; i < size + 16; ++i) {\n"
                "    a[i] = i * 0x9e3779b97f4a7c15ul; b[i] = (unsigned)(i * 2654435761u); c[i] = (double)(i % 1000);\n"
                "    d[i] = (unsigned short)(i * 40503); e[i] = (unsigned char)(i * 157);\n  }\n"
                "  for (size_t i = 0; i < 3 * size + 16; ++i) g[i] = i * 0x2545f4914f6cdd1dul;\n"
                f"{calls}{hashes}  printf(\"%lx\\n\", h);\n  return 0;\n}}\n")
