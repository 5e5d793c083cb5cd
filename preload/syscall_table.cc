#include "preload/syscall_table.h"

#include <sys/epoll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>

namespace far::preload {
namespace {

constexpr std::uint16_t epoll_bytes = 12;
static_assert(sizeof(epoll_event) == epoll_bytes);

// In rising order of numbers.
constexpr std::array table{
    table_row{SYS_read, shape::transfer, 1, 2, 1, true},
    table_row{SYS_write, shape::transfer, 1, 2, 1, true},
    table_row{SYS_poll, shape::buffer, 0, 1, 8, true},
    table_row{SYS_mmap, shape::addresses},
    table_row{SYS_mprotect, shape::addresses},
    table_row{SYS_munmap, shape::addresses},
    table_row{SYS_brk, shape::addresses},
    table_row{SYS_ioctl, shape::request, 2, 0, 1, true},
    table_row{SYS_pread64, shape::transfer, 1, 2, 1, true},
    table_row{SYS_pwrite64, shape::transfer, 1, 2, 1, true},
    table_row{SYS_readv, shape::vectors, 1, 2, 1, true},
    table_row{SYS_writev, shape::vectors, 1, 2, 1, true},
    table_row{SYS_mremap, shape::addresses},
    table_row{SYS_msync, shape::addresses},
    table_row{SYS_mincore, shape::per_page, 2, 1, 1, true},
    table_row{SYS_madvise, shape::addresses},
    table_row{SYS_shmat, shape::addresses},
    table_row{SYS_sendto, shape::transfer, 1, 2},
    table_row{SYS_recvfrom, shape::transfer, 1, 2},
    table_row{SYS_sendmsg, shape::message, 1, 0, 1, true},
    table_row{SYS_recvmsg, shape::message, 1, 0, 1, true},
    table_row{SYS_setsockopt, shape::option, 3, 4, 1, true},
    table_row{SYS_getsockopt, shape::structure, 3},
    table_row{SYS_clone, shape::fixed, 2, 0, 4, true},
    table_row{SYS_clone, shape::fixed, 3, 0, 4, true},
    table_row{SYS_execve, shape::strings, 1},
    table_row{SYS_execve, shape::strings, 2},
    table_row{SYS_semop, shape::buffer, 1, 2, 6, true},
    table_row{SYS_shmdt, shape::addresses},
    table_row{SYS_msgsnd, shape::buffer, 1, 2, 2},  // and eight bytes before the text: twice is always enough
    table_row{SYS_msgrcv, shape::buffer, 1, 2, 2},
    table_row{SYS_getdents, shape::buffer, 1, 2, 1, true},
    table_row{SYS_ptrace, shape::structure, 3},
    table_row{SYS_syslog, shape::buffer, 1, 2},
    table_row{SYS_getgroups, shape::buffer, 1, 0, 4, true},
    table_row{SYS_setgroups, shape::buffer, 1, 0, 4, true},
    table_row{SYS_mlock, shape::addresses},
    table_row{SYS_munlock, shape::addresses},
    table_row{SYS_prctl, shape::filter, 2},
    table_row{SYS_mount, shape::fixed, 4, 0, 4096},  // of which the kernel takes as much as it can
    table_row{SYS_init_module, shape::buffer, 0, 1},
    table_row{SYS_setxattr, shape::buffer, 2, 3},
    table_row{SYS_lsetxattr, shape::buffer, 2, 3},
    table_row{SYS_fsetxattr, shape::buffer, 2, 3},
    table_row{SYS_getxattr, shape::buffer, 2, 3},
    table_row{SYS_lgetxattr, shape::buffer, 2, 3},
    table_row{SYS_fgetxattr, shape::buffer, 2, 3},
    table_row{SYS_listxattr, shape::buffer, 1, 2},
    table_row{SYS_llistxattr, shape::buffer, 1, 2},
    table_row{SYS_flistxattr, shape::buffer, 1, 2},
    table_row{SYS_futex, shape::fixed, 0, 0, 4, true},
    table_row{SYS_futex, shape::fixed, 3, 0, 16, true},
    table_row{SYS_futex, shape::fixed, 4, 0, 4, true},
    table_row{SYS_sched_setaffinity, shape::buffer, 2, 1, 1, true},
    table_row{SYS_sched_getaffinity, shape::buffer, 2, 1, 1, true},
    table_row{SYS_remap_file_pages, shape::addresses},
    table_row{SYS_getdents64, shape::buffer, 1, 2, 1, true},
    table_row{SYS_set_tid_address, shape::addresses},
    table_row{SYS_epoll_wait, shape::buffer, 1, 2, epoll_bytes, true},
    table_row{SYS_mbind, shape::buffer, 3, 4, 1, true},  // as many bytes as it has bits: always enough
    table_row{SYS_mq_timedsend, shape::buffer, 1, 2},
    table_row{SYS_mq_timedreceive, shape::buffer, 1, 2},
    table_row{SYS_add_key, shape::buffer, 2, 3},
    table_row{SYS_pselect6, shape::structure, 5},
    table_row{SYS_ppoll, shape::buffer, 0, 1, 8},
    table_row{SYS_set_robust_list, shape::addresses},
    table_row{SYS_vmsplice, shape::vectors, 1, 2, 1, true},
    table_row{SYS_move_pages, shape::buffer, 2, 1, 8, true},
    table_row{SYS_move_pages, shape::buffer, 3, 1, 4, true},
    table_row{SYS_move_pages, shape::buffer, 4, 1, 4, true},
    table_row{SYS_epoll_pwait, shape::buffer, 1, 2, epoll_bytes},
    table_row{SYS_preadv, shape::vectors, 1, 2, 1, true},
    table_row{SYS_pwritev, shape::vectors, 1, 2, 1, true},
    table_row{SYS_recvmmsg, shape::messages, 1, 2},
    table_row{SYS_sendmmsg, shape::messages, 1, 2},
    table_row{SYS_process_vm_readv, shape::vectors, 1, 2},
    table_row{SYS_process_vm_readv, shape::buffer, 3, 4, 16},
    table_row{SYS_process_vm_writev, shape::vectors, 1, 2},
    table_row{SYS_process_vm_writev, shape::buffer, 3, 4, 16},
    table_row{SYS_seccomp, shape::filter, 2},
    table_row{SYS_getrandom, shape::buffer, 0, 1, 1, true},
    table_row{SYS_bpf, shape::structure, 1},
    table_row{SYS_execveat, shape::strings, 2},
    table_row{SYS_execveat, shape::strings, 3},
    table_row{SYS_mlock2, shape::addresses},
    table_row{SYS_preadv2, shape::vectors, 1, 2, 1, true},
    table_row{SYS_pwritev2, shape::vectors, 1, 2, 1, true},
    table_row{SYS_pkey_mprotect, shape::addresses},
    table_row{SYS_rseq, shape::addresses},
    table_row{435 /* clone3 */, shape::child, 0, 1, 1, true},
    table_row{440 /* process_madvise */, shape::addresses},
    table_row{441 /* epoll_pwait2 */, shape::buffer, 1, 2, epoll_bytes},
    table_row{449 /* futex_waitv */, shape::waiters, 0, 1},
    table_row{456 /* futex_requeue */, shape::waiters, 0},
    table_row{457 /* statmount */, shape::buffer, 1, 2},
    table_row{458 /* listmount */, shape::buffer, 1, 2, 8},
    table_row{462 /* mseal */, shape::addresses},
    table_row{463 /* setxattrat */, shape::structure, 4},
    table_row{464 /* getxattrat */, shape::structure, 4},
};

constexpr bool rises() {
  return std::is_sorted(table.begin(), table.end(),
                        [](const table_row& a, const table_row& b) { return a.number < b.number; });
}
static_assert(rises());

constexpr std::size_t known_numbers = 512;

// The index of the first row of each number, one past the last row of the number before it.
constexpr auto first_rows = [] {
  std::array<std::uint8_t, known_numbers + 1> firsts{};
  std::size_t row = 0;
  for (std::size_t number = 0; number <= known_numbers; ++number) {
    while (row < table.size() && table[row].number < number) ++row;
    firsts[number] = static_cast<std::uint8_t>(row);
  }
  return firsts;
}();
static_assert(table.size() < 256);

}  // namespace

std::span<const table_row> rows_of(long number) noexcept {
  if (number < 0 || number >= static_cast<long>(known_numbers)) return {};
  const std::size_t first = first_rows[static_cast<std::size_t>(number)];
  return {table.data() + first, first_rows[static_cast<std::size_t>(number) + 1] - first};
}

}  // namespace far::preload
