// Compiled with -mavx2: run only what fastest_xxh3() has chosen.
#define FAR_XXH3_FORM xxh3_avx2
#include "base/xxh3_form.h"
