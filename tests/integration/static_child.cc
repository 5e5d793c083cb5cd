// A program that is linked statically, so that nothing can be preloaded into it.
#include <cstdio>

int main() {
  std::puts("static child");
  return 0;
}
