// A program that opens a library with RTLD_DEEPBIND, as PHP does, and exchanges memory with it. The library is found by
// its name alone, through this program's RUNPATH. It does not know Farheap.
//
//   deep_binder LIBRARY
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: deep_binder LIBRARY\n", stderr);
    return 2;
  }
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
  if (library == nullptr) {
    std::fprintf(stderr, "deep_binder: %s\n", dlerror());
    return 1;
  }
  using function = char* (*)(char*);
  const auto repeat = reinterpret_cast<function>(dlsym(library, "repeat"));
  if (repeat == nullptr) {
    std::fprintf(stderr, "deep_binder: %s\n", dlerror());
    return 1;
  }
  // strdup gets its memory inside the C library, the buffer gets it here, and both are freed in the library.
  char* text = strdup("far");
  for (int i = 0; i < 16; ++i) text = repeat(text);
  std::printf("%zu\n", std::strlen(text));
  std::free(text);
  return 0;
}
