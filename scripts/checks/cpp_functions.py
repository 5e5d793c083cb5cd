"""Finds the functions of a C++ source and where they begin and end.

A scanner, not a parser: it follows braces outside functions and tells by the words before a brace what it opens. Enough
for code in this project's format; self_test() holds the cases it must get right.
"""

import re

TOKEN = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/'                       # comments
    r'|(?:u8|[uUL])?R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                              # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",             # characters, but not the ' of 1'000
    re.DOTALL)
DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w*)")
ACCESS = re.compile(r"^\s*(?:public|protected|private)\s*:(?!:)")
SCOPE = re.compile(r"^(?:template\s*<.*?>\s*(?:requires\b.*?)?)?(?:typedef\s+)?"
                   r"(?:inline\s+)?(?:(?:namespace|class|struct|union|enum)\b|extern\s+\"\")", re.DOTALL)


def functions(text):
    """[(name, first line, last line)] of every function body, in order. Lambdas belong to the function around them."""
    code = without_directives(TOKEN.sub(blank, text))
    found, position, header_start = [], 0, 0
    pending = None  # where the header began of a constructor whose initialiser list is still going on
    while (match := re.compile(r"[;{}]").search(code, position)) is not None:
        header = code[header_start:match.start()]
        position = match.end()
        if match.group() == "{":
            if pending is None and (is_scope(header) or not header.strip()):
                header_start = position
                continue
            end = closing_brace(code, match.start())
            continues = re.match(r"\s*[,{]", code[end + 1:]) is not None
            if is_function(header) or pending is not None:
                begin = header_start if pending is None else pending
                if continues:  # a brace of the initialiser list: the body comes later
                    pending = begin
                else:
                    found.append(described(code, begin, end))
                    pending = None
            position = header_start = end + 1
        else:
            header_start, pending = position, None
    return found


def blank(match):
    """Same lines, no code. Quotes stay, so that `extern "C"` can be told."""
    kept = '""' if match.group().startswith('"') else ""
    return kept + re.sub(r"[^\n]", " ", match.group()[len(kept):])


def without_directives(code):
    """Blanks preprocessor lines, and every branch of a conditional but the first, so that braces balance."""
    lines, kept, skipping, continued = code.split("\n"), [], [], False
    for line in lines:
        directive = None if continued else DIRECTIVE.match(line)
        word = directive.group(1) if directive else ""
        if word in ("if", "ifdef", "ifndef"):
            skipping.append(False)
        elif word in ("elif", "else") and skipping:
            skipping[-1] = True
        elif word == "endif" and skipping:
            skipping.pop()
        drop = continued or directive is not None
        continued = drop and line.endswith("\\")
        kept.append("" if drop or any(skipping) else line)
    return "\n".join(kept)


def is_scope(header):
    header = re.sub(r"\[\[.*?\]\]|alignas\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)", "", strip_access(header))
    if SCOPE.match(header.strip()) is None:
        return False
    return "(" not in re.sub(r"template\s*<.*?>|requires\s*\(.*?\)", "", header) or "{" in header


def is_function(header):
    header = strip_access(header)
    before = header.split("(", 1)[0]
    if "(" not in header:
        return False
    return "=" not in before or re.search(r"\boperator\s*[^\w\s]*=*\s*$", before) is not None or "[" in before


def strip_access(header):
    while (match := ACCESS.match(header)) is not None:
        header = header[match.end():]
    return header


def closing_brace(code, opening):
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    return len(code)


def described(code, begin, end):
    header = code[begin:end]
    stripped = strip_access(header).lstrip()
    begin += len(header) - len(stripped)
    name = re.search(r"([~\w:]+|operator\s*[^\s\w(]+)\s*\(", re.sub(r"template\s*<.*?>", "", stripped))
    line = code.count("\n", 0, begin) + 1
    return (name.group(1) if name else "a function"), line, code.count("\n", 0, end) + 1


def self_test():
    def names(text):
        return [(name, last - first + 1) for name, first, last in functions(text)]

    assert names("int f() {\n  if (x) {\n  }\n}\n") == [("f", 4)]
    assert names("namespace a::b {\nvoid f() {\n}\n}  // }\nvoid g() {}\n") == [("f", 2), ("g", 1)]
    assert names('extern "C" {\nint f(void)\n{\n}\n}\n') == [("f", 3)]
    assert names("class c : d<int> {\n public:\n  c() : a_{1}, b_(2) {\n  }\n  int g() const { return 1; }\n int m_ = 3;\n};"
                 ) == [("c", 2), ("g", 1)]
    assert names("c::c(int x)\n    : a_{x},\n      b_{y} {\n  z();\n}\n") == [("c::c", 5)]
    assert names("template <typename T>\nT max(T a) {\n}\n") == [("max", 3)]
    assert names("const char* s = \"{\";\nchar c = '{';\nlong n = 1'000;\nauto r = R\"x({)\" {)x\";\nvoid f() {\n}\n") == [("f", 2)]
    assert names("#if A\nvoid f() {\n#else\nvoid f(int) {\n#endif\n  x();\n}\n") == [("f", 6)]
    assert names("#define M(x) \\\n  if (x) {\nvoid f() {\n}\n") == [("f", 2)]
    assert names("const entry table[] = {\n {1, f(2)},\n {3}};\nint a[]{1, 2};\n") == []
    assert names("bool operator==(const c& x) {\n}\nc& operator=(c) {\n}\n") == [("operator==", 2), ("operator=", 2)]
    assert names("auto f = [](int x) {\n  return x;\n};\n")[0][1] == 3
    assert names("TEST(units, sizes) {\n}\n") == [("TEST", 2)]
    assert names("enum class e : int { a, b };\nstruct alignas(64) s {\n  int f() { return 1; }\n};\n") == [("f", 1)]
    assert names("template <typename T>\n  requires(sizeof(T) > 1)\nstruct s {\n  void g() {}\n};\n") == [("g", 1)]
    assert names("void f() {\n  auto g = [] {\n  };\n  h({1, 2});\n}\n") == [("f", 5)]
    assert names("struct s f(int x) {\n}\n") == [("f", 2)]
    assert names("std::array<int, n> x{1};\nvoid f() noexcept(false) try {\n} catch (...) {\n}\n")[0] == ("f", 2)
