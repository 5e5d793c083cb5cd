// jemalloc, as linked into the preload library: its public names carry the prefix far_je_ (preload/jemalloc.syms), and
// its own memory from the kernel stays local.
#pragma once

#include <jemalloc/jemalloc.h>

#include <cstddef>

extern "C" {
void* far_je_malloc(std::size_t bytes);
void* far_je_calloc(std::size_t count, std::size_t bytes);
void* far_je_realloc(void* block, std::size_t bytes);
void far_je_free(void* block);
void* far_je_memalign(std::size_t alignment, std::size_t bytes);
std::size_t far_je_malloc_usable_size(void* block);
void* far_je_mallocx(std::size_t bytes, int flags);
void* far_je_rallocx(void* block, std::size_t bytes, int flags);
int far_je_mallctl(const char* name, void* old_value, std::size_t* old_bytes, void* new_value, std::size_t new_bytes);
}
