#include "far/detail/column_questions.h"
