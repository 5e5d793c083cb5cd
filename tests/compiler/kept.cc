// 32 MiB that are written and read again: memory that stays local ("call", "malloc", "new"), or not ("usual").
#include <far/local.h>

#include <cstdio>
#include <cstdlib>
#include <string>

constexpr std::size_t count = 4 << 20;

FAR_LOCAL_DATA static unsigned long* allocated;

struct holder {
  FAR_LOCAL_DATA unsigned long* made = nullptr;
};

int main(int arguments, char** argument) {
  const std::string kind = arguments < 2 ? "" : argument[1];
  holder held;
  unsigned long* numbers = nullptr;
  if (kind == "call") {
    numbers = static_cast<unsigned long*>(far_local_allocate(count * sizeof *numbers));
  } else if (kind == "malloc") {
    allocated = static_cast<unsigned long*>(std::malloc(count * sizeof *numbers / 2));
    allocated = static_cast<unsigned long*>(std::realloc(allocated, count * sizeof *numbers));
    numbers = allocated;
  } else if (kind == "new") {
    held.made = new unsigned long[count];
    numbers = held.made;
  } else {
    numbers = static_cast<unsigned long*>(std::calloc(count, sizeof *numbers));
  }
  if (numbers == nullptr) return 2;
  bool is_right = true;
  for (std::size_t i = 0; i < count; ++i) numbers[i] = i * 3;
  for (std::size_t i = 0; i < count; ++i) is_right &= numbers[i] == i * 3;
  std::puts(is_right ? "right" : "wrong");
  if (kind == "call") {
    far_local_free(numbers, count * sizeof *numbers);
  } else if (kind == "new") {
    delete[] numbers;
  } else {
    std::free(numbers);
  }
  return 0;
}
