// Marks that do nothing, and a warning for each, on the line that `vain` stands on.
#include <far/local.h>
#include <stdlib.h>
#include <string.h>

FAR_HOT int function(int a) {  // vain
  return a + 1;
}
__attribute__((always_inline)) FAR_LOCAL_DATA inline int inlined(const int* a) {  // vain
  return a[7];
}
struct text {
  char* begin;
  char* end;
};
union number {
  long whole;
  double real;
};
FAR_HOT_TYPE(number);                // vain
FAR_HOT_TYPE(long);                  // vain
FAR_LOCAL_DATA static text kept;     // vain
FAR_LOCAL_DATA static char* copied;  // vain: of what strdup() returns

// These do what they say.
FAR_LOCAL_DATA static int small[100];
FAR_LOCAL_DATA static int* large;
FAR_LOCAL_BEGIN
static text unmarked;
FAR_LOCAL_END

int main(int count, char** arguments) {
  FAR_HOT text first = {arguments[0], arguments[0]};  // vain
  FAR_HOT int numbers[4] = {count};
  large = new int[100]{};
  kept = unmarked;
  copied = strdup(arguments[0]);
  const int result = function(small[count]) + inlined(large) + numbers[0] + (first.begin == kept.end ? 1 : 0);
  delete[] large;
  free(copied);
  return result == 0 ? 1 : 0;
}
