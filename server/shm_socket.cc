#include "server/shm_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "wire/rendezvous.h"

namespace far::server {
namespace {

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// Makes the directory if necessary. In a directory that others can write to, they could replace our socket by their
// own.
bool is_private_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat about{};
  if (lstat(folder.c_str(), &about) != 0) return false;
  return S_ISDIR(about.st_mode) && about.st_uid == geteuid() && (about.st_mode & 077) == 0;
}

}  // namespace

result<std::unique_ptr<shm_socket>> shm_socket::listen(const std::string& name, bool open_to_all) {
  if (result<void> right = wire::check_server_name(name); !right) return right.error();
  std::unique_ptr<shm_socket> created(new shm_socket);
  std::string looked_at;
  for (const std::string& path : wire::socket_paths(name)) {
    // An explicit path is the user's choice.
    if (name.find('/') == std::string::npos && !is_private_folder(folder_of(path))) {
      looked_at += (looked_at.empty() ? "" : ", ") + folder_of(path);
      continue;
    }
    if (result<void> listens = created->listen_at(path, open_to_all); !listens) return listens.error();
    return created;
  }
  return error{"--shm " + name + ": no place for the socket: none of " + looked_at +
                   " can be made as a directory of mode 0700 of our own; name a path (--shm /run/user/1000/NAME.sock)",
               EACCES};
}

// A socket file outlives its server, and does not show whether somebody listens. So a lock decides who owns the name,
// and its owner removes a leftover socket.
result<void> shm_socket::listen_at(const std::string& path, bool open_to_all) {
  const std::string lock = path + ".lock";
  lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) return error{"--shm: cannot make '" + lock + "': " + std::strerror(errno), errno};
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    return error{"--shm: another farheapd listens at " + path + "; choose another name", EADDRINUSE};
  }
  // We have the lock, so the process that made this socket has ended. Anything but a socket is not ours to remove.
  struct stat about{};
  if (lstat(path.c_str(), &about) == 0) {
    if (!S_ISSOCK(about.st_mode)) {
      return error{"--shm: '" + path + "' is there and is no socket; remove it, or choose another name", EEXIST};
    }
    if (unlink(path.c_str()) != 0) return error{"--shm: cannot remove '" + path + "': " + std::strerror(errno), errno};
  }
  const result<int> listener = wire::listen_at(path, open_to_all ? 0666 : 0600);
  if (!listener) return error{"--shm: " + listener.error().message, listener.error().code};
  listener_ = listener.value();
  path_ = path;
  return {};
}

shm_socket::~shm_socket() {
  if (listener_ >= 0) {
    unlink(path_.c_str());
    close(listener_);
  }
  // The lock's file stays: removing it would let two servers hold locks on two files of one name.
  if (lock_ >= 0) close(lock_);
}

}  // namespace far::server
