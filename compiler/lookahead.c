/* The part of the support that looks at memory ahead of loops: gathers, columns, and computed addresses. */
#include "support.h"

struct far_column;
SLOW_PATH void __farheap_column(const char* from, int64_t step, uint64_t iterations, uint64_t rest,
                                const struct far_column* column);
struct far_loop;
SLOW_PATH void __farheap_gather(const char* indices, const char* base, uint64_t chunk, uint64_t rest, uint64_t kind,
                                struct far_loop* loop);
SLOW_PATH uint64_t __farheap_look(uint64_t kind, uint64_t done, uint64_t chunk, uint64_t rest, struct far_loop* loop);
SLOW_PATH void __farheap_ahead(const void* address, uint64_t kind, struct far_loop* loop);

const struct far_compiled_objects* __farheap_objects;
far_compiled_thread_memory_call* __farheap_thread_memory;

/* A loop that looks at memory ahead of itself, one for all of its gathers. Threads share it, and do not agree about it:
 * what they lose is a needless look, or a trap. */
struct far_loop {
  struct far_hint_site* site;
  uint64_t rests_until; /* it does not look before *has_evicted is more, */
  uint64_t looked;      /* because so many addresses in a row had their pages there */
  uint64_t rest;        /* how long it rested last */
};
/* A trap costs as much as some thousand looks. */
static const uint64_t looks_before_rest = 4096;
/* In batches of up to 64 pages that leave; twice as long after each rest that was not too long. */
static const uint64_t least_rest = 8, most_rest = 64;

static bool is_resting(const struct far_loop* loop) {
  return __atomic_load_n(__farheap_compiled.has_evicted, __ATOMIC_RELAXED) <=
         __atomic_load_n(&loop->rests_until, __ATOMIC_RELAXED);
}

static void note_looks(struct far_loop* loop, uint64_t looks, bool found) {
  const uint64_t looked = found ? 0 : __atomic_load_n(&loop->looked, __ATOMIC_RELAXED) + looks;
  uint64_t rest = found ? 0 : __atomic_load_n(&loop->rest, __ATOMIC_RELAXED);
  __atomic_store_n(&loop->looked, looked < looks_before_rest ? looked : 0, __ATOMIC_RELAXED);
  if (looked >= looks_before_rest) {
    rest = rest == 0 ? least_rest : rest < most_rest ? 2 * rest : most_rest;
    const uint64_t now = __atomic_load_n(__farheap_compiled.has_evicted, __ATOMIC_RELAXED);
    __atomic_store_n(&loop->rests_until, now + rest, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&loop->rest, rest, __ATOMIC_RELAXED);
}

/* What a thread knows of each gather of the loop that it is in. Of wrong knowledge, as after a jump out of the loop,
 * come a needless look or a trap; so it is with columns and looks, below. */
struct gather_memory {
  const char* next; /* the indices of the next call */
  bool is_resident; /* all pages that they lead to were */
};

/* Of a loop's last walk through a column. A loop around it often comes back to the same pages many times, as from one
 * column of a matrix to the next. */
struct column_memory {
  const struct far_column* column;
  const char* start;
  int64_t step;
  uint64_t iterations;
  uintptr_t low; /* walks that begin from here to `high` need no look, */
  uintptr_t high;
  uint64_t evicted; /* if no batch of pages, or few for so many rows, has left since this was *has_evicted */
  int64_t margin;   /* so far beside its rows it looks, for the walks that follow: downwards if negative */
  bool needs_look;  /* this walk */
};

/* Of accesses whose addresses the loop computes: the loop's code goes through the addresses to come, in two passes. */
struct look_memory {
  const struct far_loop* loop; /* of the last call, */
  uint64_t next;               /* and after how many iterations the one comes that it has looked ahead for */
  bool is_resident;            /* all pages that it saw were */
  bool looks;
  bool copies;           /* objects are copied in place of a second pass (-ffar-objects) */
  bool waits;            /* in the second pass, */
  bool waits_if_missing; /* or only if the first one found something */
  uint64_t missing;
};

/* Objects that the first pass has found to be on missing pages (-ffar-objects), copied so many at a time. */
enum { most_wanted = 40 };
_Static_assert(most_wanted <= far_compiled_most_copies, "the runtime takes them");
struct wanted_objects {
  const void* addresses[most_wanted];
  size_t count;
};

struct thread_memory {
  struct gather_memory gathers[4];
  struct column_memory columns[2];
  struct look_memory looks[5];
  struct wanted_objects wanted;
};
_Static_assert(sizeof(struct thread_memory) <= far_compiled_thread_bytes, "the runtime keeps so much");

/* The calling thread's. Null without a runtime, and with one of a release that keeps none: then nothing is looked at.
 */
static struct thread_memory* memory_of_thread(void) {
  return __farheap_thread_memory != NULL ? __farheap_thread_memory() : NULL;
}

/* Accesses base + scale * index. `kind`: pack_gather() of runtime_names.h. */
struct gather {
  const char* indices;
  uintptr_t base;
  uint64_t kind;
  struct far_hint_site* site;
};

/* Missing pages that follow one another, as of indices that go up: they are passed on together. */
struct page_run {
  uintptr_t first; /* of numbers of pages */
  uintptr_t end;
};
static const uintptr_t longest_run = 64;

static void pass_on(const struct far_hint_view* view, const struct page_run* run, uint64_t options,
                    struct far_hint_site* site) {
  if (run->first == run->end) return;
  const uint64_t others = run->end - run->first - 1;
  const uint64_t walk = far_hint_pack((struct far_hint_options){.sequential = others > 0});
  view->miss((const void*)(run->first << 12), (others << 12) + 1, options | walk, site);
}

/* A look at many pages: what is missing is passed on with `options`. */
struct look_at_pages {
  const struct far_hint_view* view;
  uint64_t options;
  struct far_hint_site* site;
  uintptr_t last_page;
  struct page_run run;
  uint64_t missing; /* so many were */
};

static void look_at_page(struct look_at_pages* look, uintptr_t page) {
  if (page == look->last_page || (page << 12) - look->view->base >= look->view->bytes) return;
  look->last_page = page;
  if (!is_missing(page << 12)) return;
  ++look->missing;
  if (page != look->run.end || look->run.end - look->run.first == longest_run) {
    pass_on(look->view, &look->run, look->options, look->site);
    look->run.first = page;
  }
  look->run.end = page + 1;
}

static uint64_t end_look(const struct look_at_pages* look) {
  pass_on(look->view, &look->run, look->options, look->site);
  return look->missing;
}

/* Looks at the indices [from, to), and passes the missing pages that they lead to on with `options`. Returns how many
 * there were. */
static uint64_t look_up(const struct far_hint_view* view, const struct gather* all, uint64_t from, uint64_t to,
                        uint64_t options) {
  const uint64_t now = far_hint_pack((struct far_hint_options){.sequential = true});
  const int64_t step = (int16_t)(all->kind >> 16);
  const uint64_t scale = (uint64_t)(int64_t)(int32_t)(all->kind >> 32);
  const uint64_t bytes = all->kind >> 8 & 0xff;
  const uint64_t sign = (all->kind & 4) != 0 ? UINT64_C(1) << (8 * bytes - 1) : 0;
  const uintptr_t base = all->base;
  const char* at = all->indices + (int64_t)from * step;
  uintptr_t page_of_indices = 0;
  struct look_at_pages look = {.view = view, .options = options, .site = all->site};
  for (uint64_t i = from; i < to; ++i, at += step) {
    if ((uintptr_t)at >> 12 != page_of_indices) {
      page_of_indices = (uintptr_t)at >> 12;
      if (view_of(at) != NULL && is_missing((uintptr_t)at)) view->miss(at, 1, now, all->site);
    }
    look_at_page(&look, (base + scale * read_index(at, bytes, sign)) >> 12);
  }
  return end_look(&look);
}

/* Apart from the short way of loops that rest, which then saves no registers. */
__attribute__((preserve_most, cold, noinline)) static void gather_now(const char* indices, const char* base,
                                                                      uint64_t chunk, uint64_t rest, uint64_t kind,
                                                                      struct far_loop* loop) {
  const struct far_hint_view* const view = far_hint_view_here;
  struct thread_memory* const thread = memory_of_thread();
  if (view == NULL || view->bytes == 0 || thread == NULL) return;
  struct gather_memory* const memory = &thread->gathers[kind >> 3 & 3];
  const bool begins = (kind & 2) != 0;
  const bool is_known = !begins && memory->next == indices;
  memory->next = indices + (int64_t)chunk * (int16_t)(kind >> 16);
  const bool write = (kind & 1) != 0;
  const uint64_t later = far_hint_pack((struct far_hint_options){.mutate = write, .prefetch = true});
  const uint64_t now = far_hint_pack((struct far_hint_options){.mutate = write, .sequential = true});
  const struct gather all = {indices, (uintptr_t)base, kind, loop->site};
  const uint64_t from = begins ? 0 : chunk;
  const uint64_t end = rest / 2 < chunk ? rest : 2 * chunk;
  const uint64_t missing = look_up(view, &all, from, end, later);
  const bool waits = begins ? missing != 0 : !is_known || !memory->is_resident;
  if (waits) look_up(view, &all, 0, chunk < rest ? chunk : rest, now);
  memory->is_resident = missing == 0;
  note_looks(loop, chunk, missing != 0);
}

/* The loop is going to follow the `rest` indices from `indices` on, `chunk` of them before the next call. Starts to
 * fetch the missing pages of the next chunk, and first of all of this one; then waits for those of this one, which are
 * on their way together. The loop has no guards for them. It reads the indices itself, if this function does not; it is
 * told of none that the loop could leave unread. */
SLOW_PATH void __farheap_gather(const char* indices, const char* base, uint64_t chunk, uint64_t rest, uint64_t kind,
                                struct far_loop* loop) {
  if (!is_resting(loop)) gather_now(indices, base, chunk, rest, kind, loop);
}

/* Rows that a loop goes through, which begin farther apart than they are long. */
struct far_column {
  struct far_hint_site* site;
  uint32_t row_bytes;
  uint32_t rows; /* from call to call */
  uint64_t kind; /* of_writes, is_here */
};
enum { of_writes = 1, is_here = 2 };

/* A look at so many rows costs less than a batch of pages that leave. */
static const uint64_t rows_of_a_batch = 4096;
/* Of no more rows, what the walks that follow are going to need beside them is fetched, too, and some of it is waited
 * for, so that these walks need no look. */
static const int64_t waited_bytes = 1024, margin_bytes = 4096;
static const uint64_t most_rows_beside = 512;

static int64_t waited_for(int64_t margin) {
  return nearer(margin, margin < 0 ? -waited_bytes : waited_bytes);
}

/* The walks whose rows lie on the same pages: rows that are whole pages apart move through them together. */
static void cover_pages(struct column_memory* memory, uint64_t row_bytes) {
  const uintptr_t page = 4096;
  const uintptr_t first = (uintptr_t)memory->start;
  const uintptr_t last = first + row_bytes - 1;
  const uintptr_t before = row_bytes - 1;
  const bool are_together = (uint64_t)memory->step % page == 0;
  const uintptr_t low = first / page * page, other_low = last / page * page - before;
  const uintptr_t high = first | (page - 1), other_high = (last | (page - 1)) - before;
  memory->low = !are_together ? first : low > other_low ? low : other_low;
  memory->high = !are_together ? first : high < other_high ? high : other_high;
}

/* A walk begins. */
static void begin_walk(struct column_memory* memory, const struct far_column* column, const char* start, int64_t step,
                       uint64_t iterations) {
  const uint64_t evicted = __atomic_load_n(__farheap_compiled.has_evicted, __ATOMIC_RELAXED);
  const bool continues = memory->column == column && memory->step == step && iterations <= memory->iterations;
  const int64_t further = (int64_t)((uintptr_t)start - (uintptr_t)memory->start);
  const bool is_covered = (uintptr_t)start >= memory->low && (uintptr_t)start <= memory->high;
  const bool are_here = evicted - memory->evicted <= iterations / rows_of_a_batch;
  memory->start = start;
  memory->needs_look = !continues || !is_covered || !are_here;
  if (!memory->needs_look) return;
  memory->column = column;
  memory->step = step;
  memory->iterations = iterations;
  memory->evicted = evicted;
  memory->margin = 0;
  cover_pages(memory, column->row_bytes);
  if (!continues || iterations > most_rows_beside || further == 0 || nearer(further, margin_bytes) != further) return;
  memory->margin = further < 0 ? -margin_bytes : margin_bytes;
  memory->low = (uintptr_t)start - (further < 0 ? waited_bytes : 0);
  memory->high = (uintptr_t)start + (further < 0 ? 0 : waited_bytes);
}

/* Looks at the rows [from, to), and `margin` beside each. Rows that lie side by side need no look each. */
static uint64_t look_at_rows(const struct column_memory* memory, uint64_t from, uint64_t to, int64_t margin,
                             uint64_t options) {
  const struct far_column* const column = memory->column;
  struct look_at_pages look = {.view = far_hint_view_here, .options = options, .site = column->site};
  const uint64_t apart = distance(memory->step);
  const uint64_t stride = apart != 0 && apart < 2048 ? 2048 / apart : 1;
  const uintptr_t start = (uintptr_t)memory->start + (uintptr_t)(margin < 0 ? margin : 0);
  const uintptr_t last_byte = distance(margin) + column->row_bytes - 1;
  for (uint64_t i = from, next = 0; i < to; i = next) {
    next = i + stride < to || i + 1 == to ? i + stride : to - 1;
    const uintptr_t first = start + i * (uint64_t)memory->step;
    for (uintptr_t page = first >> 12; page <= (first + last_byte) >> 12; ++page) look_at_page(&look, page);
  }
  return end_look(&look);
}

/* The loop has `rest` of its `iterations` left, each with a row of the column. The first one of all is at `start`, or
 * the next one, if it is_here. As for a gather, missing pages of this call's rows and the next one's start on their
 * way, and those of this one's are waited for. */
SLOW_PATH void __farheap_column(const char* from, int64_t step, uint64_t iterations, uint64_t rest,
                                const struct far_column* column) {
  const struct far_hint_view* const view = far_hint_view_here;
  struct thread_memory* const thread = memory_of_thread();
  if (view == NULL || view->bytes == 0 || thread == NULL) return;
  struct column_memory* const memory = &thread->columns[(uintptr_t)column / sizeof *column % 2];
  const uint64_t done = iterations - rest;
  const char* const start = (column->kind & is_here) == 0 ? from : from - done * (uint64_t)step;
  if (done == 0 || memory->column != column || memory->start != start || memory->step != step) {
    begin_walk(memory, column, start, step, iterations);
    /* It was interrupted by another one, and does not know what that has left of its first rows. */
    if (done != 0) memory->low = UINTPTR_MAX;
  }
  if (!memory->needs_look) return;
  const uint64_t end = rest < column->rows ? iterations : done + column->rows;
  const uint64_t end_ahead = rest / 2 < column->rows ? iterations : done + 2 * column->rows;
  const bool write = (column->kind & of_writes) != 0;
  const uint64_t later = far_hint_pack((struct far_hint_options){.mutate = write, .prefetch = true});
  const uint64_t now = far_hint_pack((struct far_hint_options){.mutate = write, .sequential = true});
  const uint64_t missing = look_at_rows(memory, done == 0 ? 0 : end, end_ahead, memory->margin, later);
  if (done != 0 || missing != 0) look_at_rows(memory, done, end, waited_for(memory->margin), now);
}

/* Without copies, and with a runtime that knows none, the pages come as they do for other loops. */
static bool copies_are_kept(void) {
  return __farheap_objects != NULL && __farheap_objects->make_copies(NULL, 0) != far_compiled_no_copies;
}

static uint64_t copy_wanted(struct wanted_objects* wanted) {
  const size_t count = wanted->count < most_wanted ? wanted->count : most_wanted;
  wanted->count = 0;
  return count != 0 ? __farheap_objects->make_copies(wanted->addresses, count) : 0;
}

/* Before a pass. `kind`: bit 0, it writes; bit 1, the pass; from bit 2, which one of its loop it is; 4: it follows
 * pointers, which are here for this chunk only; bit 5: it reads objects, whose copies come all at once in place of the
 * second pass. `done` iterations of the loop have ended, `chunk` follow before the next call, `rest` in all. Returns
 * how many to go through (bits 0 to 31), and which the first one is whose page is looked at (from bit 32). In the first
 * pass missing pages are requested, of this chunk only if it is not known from before; in the second one, those of this
 * chunk are waited for. */
SLOW_PATH uint64_t __farheap_look(uint64_t kind, uint64_t done, uint64_t chunk, uint64_t rest, struct far_loop* loop) {
  struct thread_memory* const thread = memory_of_thread();
  if (thread == NULL) return 0;
  struct look_memory* const memory = &thread->looks[kind >> 2 & 7];
  if ((kind & 2) != 0) {
    if (!memory->looks) return 0;
    if (memory->copies) memory->missing += copy_wanted(&thread->wanted);
    memory->is_resident = memory->missing == 0;
    note_looks(loop, chunk, memory->missing != 0);
    if (memory->copies) return 0;
    return memory->waits || (memory->waits_if_missing && memory->missing != 0) ? chunk : 0;
  }
  const bool follows = (kind >> 2 & 7) == 4;
  const bool is_known = done != 0 && memory->loop == loop && memory->next == done && !follows;
  memory->looks = !is_resting(loop);
  memory->loop = loop;
  memory->next = memory->looks ? done + chunk : UINT64_MAX;
  memory->missing = 0;
  memory->waits = done != 0 && !(is_known && memory->is_resident) && !follows;
  memory->waits_if_missing = done == 0 || follows;
  memory->copies = memory->looks && (kind & 32) != 0 && copies_are_kept();
  if (!memory->looks) return 0;
  if (follows) return chunk;
  return (rest / 2 < chunk ? rest : 2 * chunk) | (is_known ? chunk : 0) << 32;
}

/* An address of a missing page. */
SLOW_PATH void __farheap_ahead(const void* address, uint64_t kind, struct far_loop* loop) {
  const struct far_hint_view* const view = view_of(address);
  struct thread_memory* const thread = memory_of_thread();
  if (view == NULL || thread == NULL) return;
  struct look_memory* const memory = &thread->looks[kind >> 2 & 7];
  if (memory->copies) {
    struct wanted_objects* const wanted = &thread->wanted;
    /* A signal handler may come here when the list is full, too. */
    const size_t at = wanted->count < most_wanted ? wanted->count : 0;
    wanted->addresses[at] = address;
    wanted->count = at + 1;
    if (at + 1 == most_wanted) memory->missing += copy_wanted(wanted);
    return;
  }
  const bool waits = (kind & 2) != 0;
  ++memory->missing;
  view->miss(
      address, 1,
      far_hint_pack((struct far_hint_options){.mutate = (kind & 1) != 0, .sequential = waits, .prefetch = !waits}),
      loop->site);
}
