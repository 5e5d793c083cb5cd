#define FAR_XXH3_FORM xxh3_baseline
#include "base/xxh3_form.h"
