"""Tests of the passes, each by itself: `opt` runs one, FileCheck reads what came of it. CTest runs them
(tests/compiler/CMakeLists.txt)."""

import lit.formats

config.name = "passes"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".ll"]
config.test_source_root = lit_config.params["sources"]
config.test_exec_root = lit_config.params["results"]
config.substitutions.append(("%opt", f"{lit_config.params['tools']}/opt -S -load-pass-plugin={lit_config.params['plugin']}"))
config.substitutions.append(("%FileCheck", f"{lit_config.params['tools']}/FileCheck"))
