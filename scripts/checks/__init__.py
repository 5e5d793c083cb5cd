"""The checks of the code base, one module each (and what they and scripts/run-tests share).

A check module has NAME (for `scripts/lint NAME`), check(tree), which returns the list of failures as
"path:line: what is wrong; what to do", and self_test(), which asserts that bad examples fail and good ones pass.
A check that can repair what it finds has fix(tree).
"""
