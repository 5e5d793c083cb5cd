"""The link door's rules: the examples of its pages compile and run, and mistakes do not compile."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import support

COMPILERS = ("g++", "clang++-19")
PAGES = [support.SOURCE / "docs" / name for name in ("pointers.md", "containers.md", "dataframe.md")]
FLAGS = ("-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-I",
         support.SOURCE / "include")
PRELUDE = """
#include <unistd.h>
#undef NDEBUG
#include <array>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
#include "far/array.h"
#include "far/fiber.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/memory_resource.h"
#include "far/query.h"
#include "far/queue.h"
#include "far/relocatable.h"
#include "far/remote_hash_map.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/search.h"
#include "far/shared_ptr.h"
#include "far/stack.h"
#include "far/string.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "far/vector.h"
"""
TYPES = """
struct named { int name = 0; };
struct point { int x = 0; };
struct named_point : named, point {};
struct watched : named { ~watched() {} };
struct virtual_point : virtual point {};
struct with_text { std::string text; };
struct with_list { std::list<int> numbers; };
struct alignas(8192) wide { int number = 0; };
struct alignas(4096) page_wide { int number = 0; };
struct with_vector { std::vector<int> numbers; };
template <> inline constexpr bool far::is_relocatable<with_vector> = far::relocatable_members<&with_vector::numbers>;
template <> inline constexpr bool far::is_relocatable<with_text> = far::relocatable_members<&with_text::text>;
"""
# Algorithms on ranges of far containers. libstdc++'s debug mode checks what they are given and compare.
ALGORITHMS = """
#include <algorithm>
#include <random>
template <typename Container>
void use(far::runtime& farheap, Container all) {
  std::vector<int> model;
  std::mt19937 random(3);
  for (int i = 0; i < 30'000; ++i) model.push_back(static_cast<int>(random() % 5'000));
  const far::scope here(farheap);
  std::ranges::copy(model, all.range_mut(here).begin());
  const auto mine = all.range_mut(here);
  const auto same = [&] { assert(std::ranges::equal(all.range(here), model)); };
  const auto both = [&](auto operation) {
    operation(mine.begin(), mine.end());
    operation(model.begin(), model.end());
    same();
  };
  both([](auto first, auto last) { std::nth_element(first, first + 15'000, last); std::sort(first, last); });
  both([](auto first, auto last) { assert(std::binary_search(first, last, *(first + 777))); });
  both([](auto first, auto last) { assert(std::lower_bound(first, last, 44) <= std::upper_bound(first, last, 44)); });
  both([](auto first, auto last) { std::rotate(first, first + 12'345, last); std::reverse(first + 7, last - 7); });
  both([](auto first, auto last) { std::make_heap(first, last); std::pop_heap(first, last); std::push_heap(first, last); });
  both([](auto first, auto last) { std::partial_sort(first, first + 100, last); std::inplace_merge(first, first + 50, first + 100); });
  both([](auto first, auto last) { std::stable_partition(first, last, [](int one) { return one % 3 == 0; }); });
  both([](auto first, auto last) { std::stable_sort(first, last); std::fill(std::unique(first, last), last, -1); });
  both([](auto first, auto last) { std::shuffle(first, last, std::mt19937(5)); std::next_permutation(first, last); });
  std::ranges::sort(mine | std::views::drop(9));
  std::ranges::sort(model | std::views::drop(9));
  same();
  assert(std::ranges::max(all.range(here) | std::views::reverse) == *std::ranges::max_element(model));
}
static void lists(far::runtime& farheap) {
  far::list<int> all(farheap);
  for (int i = 0; i < 5'000; ++i) all.push_back(i * 7919 % 5'000);
  const far::scope here(farheap);
  const auto mine = all.range_mut(here);
  std::reverse(mine.begin(), mine.end());
  std::ranges::transform(mine, mine.begin(), [](int one) { return one * 2; });
  assert(std::ranges::count(all.range(here), 4'000) == 1 && std::ranges::min(all.range(here)) == 0);
  assert(std::is_permutation(mine.begin(), std::next(mine.begin(), 9), mine.begin()));
}
"""
# The code that is refused, a part of the message, and its correct neighbour.
REFUSED = {
    "a temporary scope": (
        "auto one = far::make_unique<int>(farheap); static_cast<void>(one.deref(far::scope(farheap)));",
        "the_scope_must_be_a_local_variable",
        "auto one = far::make_unique<int>(farheap); const far::scope here(farheap); static_cast<void>(one.deref(here));"),
    "a temporary scope for writing": (
        "auto one = far::make_shared<int>(farheap); one.deref_mut(far::scope(farheap), far::non_temporal) = 1;",
        "the_scope_must_be_a_local_variable",
        "auto one = far::make_shared<int>(farheap); far::scope here(farheap); one.deref_mut(here, far::non_temporal) = 1;"),
    "a temporary scope for an element": (
        "auto all = far::make_unique<int[]>(farheap, 3); all.deref_mut(far::scope(farheap), 1) = 1;",
        "the_scope_must_be_a_local_variable",
        "auto all = far::make_unique<int[]>(farheap, 3); far::scope here(farheap); all.deref_mut(here, 1) = 1;"),
    "a temporary scope for a pointer that may be null, once": (
        "auto one = far::make_unique<int>(farheap); static_cast<void>(one.get(far::scope(farheap), far::non_temporal));",
        "the_scope_must_be_a_local_variable",
        "auto one = far::make_unique<int>(farheap); far::scope here(farheap); static_cast<void>(one.get(here, far::non_temporal));"),
    "a temporary scope for a pointer that may be null": (
        "auto one = far::make_unique<int>(farheap); static_cast<void>(one.get(far::scope(farheap)));",
        "the_scope_must_be_a_local_variable",
        "auto one = far::make_unique<int>(farheap); const far::scope here(farheap); static_cast<void>(one.get(here));"),
    "no scope": (
        "auto one = far::make_unique<int>(farheap); static_cast<void>(one.deref());",
        "deref",
        "auto one = far::make_unique<int>(farheap); static_cast<void>(one.read());"),
    "a scope that is copied": (
        "const far::scope here(farheap); const far::scope again(here);",
        "deleted",
        "const far::scope here(farheap); const far::scope again(farheap);"),
    "a write through a const pointer": (
        "const auto one = far::make_unique<int>(farheap); far::scope here(farheap); one.deref_mut(here) = 1;",
        "deref_mut",
        "const auto one = far::make_shared<int>(farheap); far::scope here(farheap); one.deref_mut(here) = 1;"),
    "a string": (
        "auto one = far::make_unique<std::string>(farheap);",
        "std::string points into itself",
        "auto one = far::make_unique<std::vector<char>>(farheap);"),
    "a member that is a string": (
        "auto one = far::make_unique<with_text>(farheap);",
        "must be trivially copyable, or declare its far pointers",
        "auto one = far::make_unique<with_vector>(farheap);"),
    "a type that nobody vouches for": (
        "auto all = far::make_shared<with_list[]>(farheap, 3);",
        "must be trivially copyable, or declare its far pointers",
        "auto all = far::make_shared<with_vector[]>(farheap, 3);"),
    "too much alignment": (
        "auto one = far::make_unique<wide>(farheap);",
        "aligned to a page of 4096 bytes at most",
        "auto one = far::make_unique<page_wide>(farheap);"),
    "too much alignment of an element": (
        "far::vector<wide> all(farheap);",
        "aligned to a page of 4096 bytes at most",
        "far::vector<page_wide> all(farheap);"),
    "too much alignment of a value": (
        "far::hash_map<int, wide> all(farheap);",
        "aligned to a page of 4096 bytes at most",
        "far::hash_map<int, page_wide> all(farheap);"),
    "a base that begins later": (
        "far::unique_ptr<point> base = far::make_unique<named_point>(farheap);",
        "has_address_of_base|owned_as|no viable conversion|conversion from",
        "far::unique_ptr<named> base = far::make_unique<named_point>(farheap);"),
    "a base that cannot destroy": (
        "far::unique_ptr<named> base(far::unique_ptr<watched>{});",
        "owned_as",
        "far::shared_ptr<named> base(far::shared_ptr<watched>{});"),
    "a virtual base": (
        "far::shared_ptr<point> base(far::shared_ptr<virtual_point>{});",
        "no matching",
        "far::shared_ptr<point> base(far::shared_ptr<named_point>{});"),
    "a hash of a unique_ptr": (
        "static_cast<void>(std::hash<far::unique_ptr<int>>());",
        "hash",
        "static_cast<void>(std::hash<far::shared_ptr<int>>());"),
    "a copy of a unique_ptr": (
        "auto one = far::make_unique<int>(farheap); auto other = one;",
        "deleted|implicitly",
        "auto one = far::make_unique<int>(farheap); auto other = std::move(one);"),
    "a copy of a task": (
        "auto one = farheap.spawn([] {}); auto other = one;",
        "deleted|implicitly",
        "auto one = farheap.spawn([] {}); auto other = std::move(one);"),
    "a temporary scope for an element of a vector": (
        "far::vector<int> all(farheap, 3); static_cast<void>(all.at(far::scope(farheap), 1));",
        "the_scope_must_be_a_local_variable",
        "far::vector<int> all(farheap, 3); const far::scope here(farheap); static_cast<void>(all.at(here, 1));"),
    "a temporary scope for a walk": (
        "far::list<int> all(farheap); for (int one : all.range(far::scope(farheap))) static_cast<void>(one);",
        "the_scope_must_be_a_local_variable",
        "far::list<int> all(farheap); const far::scope here(farheap); for (int one : all.range(here)) static_cast<void>(one);"),
    "a temporary scope for the end of an array": (
        "far::array<int, 3> all(farheap); static_cast<void>(all.back(far::scope(farheap)));",
        "the_scope_must_be_a_local_variable",
        "far::array<int, 3> all(farheap); const far::scope here(farheap); static_cast<void>(all.back(here));"),
    "a temporary scope for a chunk": (
        "far::vector<int> all(farheap, 3); all.chunk_mut(far::scope(farheap), 1).front() = 1;",
        "the_scope_must_be_a_local_variable",
        "far::vector<int> all(farheap, 3); const far::scope here(farheap); all.chunk_mut(here, 1).front() = 1;"),
    "a temporary scope for an iterator": (
        "far::list<int> all(farheap); static_cast<void>(all.from(far::scope(farheap), all.begin_position()));",
        "the_scope_must_be_a_local_variable",
        "far::list<int> all(farheap); const far::scope here(farheap); static_cast<void>(all.from(here, all.begin_position()));"),
    "a temporary scope for the front of a list": (
        "far::list<int> all(farheap); all.push_back(1); all.front_mut(far::scope(farheap)) = 1;",
        "the_scope_must_be_a_local_variable",
        "far::list<int> all(farheap); all.push_back(1); const far::scope here(farheap); all.front_mut(here) = 1;"),
    "a copy of a vector": (
        "far::vector<int> one(farheap); auto other = one;",
        "deleted|implicitly",
        "far::vector<int> one(farheap); auto other = one.clone();"),
    "a vector of strings": (
        "far::vector<std::string> all(farheap);",
        "std::string points into itself",
        "far::vector<std::vector<char>> all(farheap);"),
    "a temporary scope for a text": (
        "far::string text; static_cast<void>(text.view(far::scope(farheap)));",
        "the_scope_must_be_a_local_variable",
        "far::string text; const far::scope here(farheap); static_cast<void>(text.view(here));"),
    "a text that does not know where it lives": (
        'far::string text("text");',
        "no matching|could not convert",
        'far::string text(farheap, "text");'),
    "a copy of a string": (
        "far::string one; auto other = one;",
        "deleted|implicitly",
        "far::string one; auto other = one.clone(farheap);"),
    "a temporary scope for a look-up": (
        "far::hash_map<int, int> all(farheap); static_cast<void>(all.find(far::scope(farheap), 1));",
        "the_scope_must_be_a_local_variable",
        "far::hash_map<int, int> all(farheap); const far::scope here(farheap); static_cast<void>(all.find(here, 1));"),
    "a map of strings that point into themselves": (
        "far::hash_map<int, std::string> all(farheap);",
        "std::string points into itself",
        "far::hash_map<int, far::string> all(farheap);"),
    "a map of what is local with entries of whole pages": (
        "far::hash_map<int, std::array<char, 5000>> all(farheap, far::while_local{});",
        "at most 4072 bytes together",
        "far::hash_map<int, std::array<char, 4000>> all(farheap, far::while_local{});"),
    "a map on a server with entries of whole pages": (
        'far::remote_hash_map<int, std::array<char, 4070>> all(farheap, "tcp://server:7070");',
        "far::remote_hash_map share pages of local memory",
        'far::remote_hash_map<int, std::array<char, 4068>> all(farheap, "tcp://server:7070");'),
    "a copy of a map": (
        "far::hash_map<int, int> one(farheap); auto other = one;",
        "deleted|implicitly",
        "far::hash_map<int, int> one(farheap); auto other = std::move(one);"),
    "a value of another type": (
        'far::hash_map<int, int> all(farheap); all.put(1, "one");',
        "no matching|constraint",
        "far::hash_map<int, int> all(farheap); all.put(1, 1);"),
    "a write through a const map": (
        "const far::hash_map<int, int> all(farheap); const far::scope here(farheap); *all.find_mut(here, 1) = 1;",
        "find_mut",
        "far::hash_map<int, int> all(farheap); const far::scope here(farheap); *all.find_mut(here, 1) = 1;"),
    "three elements in an object": (
        "far::vector<int, 3> all(farheap);",
        "a power of two of elements",
        "far::vector<int, 4> all(farheap);"),
    "a write through a const vector": (
        "const far::vector<int> all(farheap, 3); const far::scope here(farheap); all.deref_mut(here, 0) = 1;",
        "deref_mut",
        "far::vector<int> all(farheap, 3); const far::scope here(farheap); all.deref_mut(here, 0) = 1;"),
    "a task that nobody keeps": (
        "farheap.spawn([] {});",
        "nodiscard",
        "farheap.run([] {});"),
}


def blocks_of(page):
    """The code of a page, by its kind: "" for statements, "types", "refused"."""
    found = {"": [], "types": [], "refused": []}
    for kind, code in re.findall(r"^```cpp ?(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        found[kind].append(code)
    return found


def program(types, blocks):
    body = "".join(f"{{\n{code}}}\n" for code in blocks)
    return (f"#if !defined(HAS_PRELUDE)\n{PRELUDE}\n#endif\n{types}\nstatic void examples(far::runtime& farheap) {{\n"
            f"static_cast<void>(farheap);\n{body}}}\n"
            "int main() try {\n  far::runtime farheap({.local_bytes = std::size_t{16} << 20, .workers = 2});\n"
            "  examples(farheap);\n} catch (const std::exception& refused) {\n"
            "  static_cast<void>(fprintf(stderr, \"%s\\n\", refused.what()));\n  return 1;\n}\n")


class Pointers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.compilers = [name for name in COMPILERS if shutil.which(name)]
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for compiler in cls.compilers:
            cls.precompile_prelude(compiler)
        cls.pages = {page.stem: blocks_of(page) for page in PAGES}

    @classmethod
    def precompile_prelude(cls, compiler, *definitions):
        """Most programs here have the same options and headers. Both compilers look for this beside the header."""
        header = cls.prelude(compiler, definitions)
        header.parent.mkdir()
        header.write_text("#define HAS_PRELUDE\n" + PRELUDE)
        kind = "gch" if compiler.startswith("g++") else "pch"
        subprocess.run([str(word) for word in [compiler, *FLAGS, *definitions, "-x", "c++-header", header, "-o", f"{header}.{kind}"]],
                       check=True, timeout=support.DEADLINE_S)

    @classmethod
    def prelude(cls, compiler, definitions):
        return cls.folder / "-".join([compiler, *definitions]) / "prelude.h"

    def compile(self, compiler, name, source, *options):
        file = self.folder / f"{compiler}-{re.sub('[^a-z0-9]', '-', name)}.cc"
        file.write_text(source)
        prelude = self.prelude(compiler, [str(word) for word in options if str(word).startswith("-D")])
        command = [compiler, *FLAGS, *(["-include", prelude] if prelude.exists() else []), file, *options]
        done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=support.DEADLINE_S,
                              env={**os.environ, "LC_ALL": "C"})
        return done.returncode, done.stderr

    def compile_all(self, programs):
        """compile() of each of `programs`, which are its arguments, two at a time: [(arguments, (code, said))]."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(zip(programs, pool.map(lambda arguments: self.compile(*arguments), programs)))

    def check_refused(self, programs):
        """`programs`: (name, source, what the compilers say of it). All of them are for all compilers in the soak, and half of
        them for one else: other ones every day, and every other time another one."""
        messages = {name: message for name, _, message in programs}
        compilers = [compiler for one in self.compilers for compiler in (one, None)]  # None: not today
        taken = [(compiler, name, source, "-fsyntax-only") for number, (name, source, _) in enumerate(programs)
                 for compiler in support.of_today(compilers, number) if compiler]
        for (compiler, name, *_), (code, said) in self.compile_all(taken):
            with self.subTest(name, compiler=compiler):
                self.assertNotEqual(code, 0, f"{compiler} takes {name}")
                self.assertRegex(said, messages[name])
                self.assertLess(said.count("error:"), 8, said)

    def test_what_would_go_wrong_is_refused(self):
        correct = program(TYPES, [right for _, _, right in REFUSED.values()])
        for _, (code, said) in self.compile_all(
                [(compiler, "correct", correct, "-fsyntax-only") for compiler in self.compilers]):
            self.assertEqual(code, 0, said)
        self.check_refused([(name, program(TYPES, [wrong]), message) for name, (wrong, message, _) in REFUSED.items()])

    def test_what_a_page_says_is_refused_is(self):
        self.assertGreater(len(self.pages["pointers"]["refused"]), 2)
        self.check_refused([(f"{name}-{number}", program("".join(page["types"]), [code]), "error:")
                            for name, page in self.pages.items() for number, code in enumerate(page["refused"])])

    def test_the_pages_compile_and_run(self):
        # Both compilers, and both kinds of build; not each with each. A page is for both in the soak, and else for one of
        # them, which is another one every day.
        builds = list(zip(self.compilers, ([], ["-DFARHEAP_CHECKED"])))
        for compiler, flags in builds:
            if flags:
                self.precompile_prelude(compiler, *flags)
        programs = []
        for number, file in enumerate(PAGES):
            page = self.pages[file.stem]
            self.assertGreater(len(page[""]), 2)
            self.assertEqual(sum(map(len, page.values())), file.read_text().count("\n```cpp"))
            programs += [(compiler, file.stem, page, *flags) for place, (compiler, flags) in enumerate(builds)
                         if support.SOAK or (number + place + support.DAY) % len(builds) == 0]
        self.check_runs(programs)

    def test_algorithms_in_debug_mode(self):
        page = {"types": [ALGORITHMS], "": [
            "use(farheap, far::vector<int>(farheap, 30'000));",
            "lists(farheap);"]}
        self.check_runs([(self.compilers[0], "algorithms", page, "-D_GLIBCXX_DEBUG", "-D_GLIBCXX_CONCEPT_CHECKS")])

    def test_parts_of_both_kinds_stop_the_program(self):
        """One file with -DFARHEAP_CHECKED and one without; and both with it."""
        compiler = self.compilers[0]
        other = self.folder / "other.cc"
        other.write_text('#include "far/unique_ptr.h"\nvoid other() { const far::unique_ptr<int> none; }\n')
        library = [support.BUILD / "lib" / "libfarheap.so", f"-Wl,-rpath,{support.BUILD / 'lib'}"]
        for flags, mixed in (([], True), (["-DFARHEAP_CHECKED"], False)):
            part = self.folder / f"other-{len(flags)}.o"
            subprocess.run([str(word) for word in [compiler, *FLAGS, *flags, "-c", other, "-o", part]], check=True,
                           timeout=support.DEADLINE_S)
            whole = self.folder / f"kinds-{len(flags)}"
            source = "void other();\n#include \"far/unique_ptr.h\"\nint main() { other(); }\n"
            code, said = self.compile(compiler, "kinds", source, "-DFARHEAP_CHECKED", part, *library, "-o", whole)
            self.assertEqual(code, 0, said)
            done = support.run([whole])
            self.assertEqual(done.code == 0, not mixed, done)
            self.assertEqual("compile all files" in done.err, mixed, done)

    def binary(self, compiler, name):
        return self.folder / f"{name}-{compiler}"

    def check_runs(self, programs):
        """`programs`: (compiler, name, page, flags ...). Not optimized: half of the time would go into that."""
        library = [support.BUILD / "lib" / "libfarheap.so", f"-Wl,-rpath,{support.BUILD / 'lib'}"]
        for (compiler, name, *_), (code, said) in self.compile_all(
                [(compiler, name, program("".join(page["types"]), page[""]), *flags, *library, "-o",
                  self.binary(compiler, name)) for compiler, name, page, *flags in programs]):
            with self.subTest(name, compiler=compiler):
                self.assertEqual(code, 0, said)
                done = support.run([self.binary(compiler, name)])
                if "cannot open a userfaultfd" in done.err:
                    raise unittest.SkipTest(done.err.strip())
                self.assertEqual(done.code, 0, done)


if __name__ == "__main__":
    support.main()
