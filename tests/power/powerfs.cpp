// A file system in memory that forgets what was not synced, for tests of power failures.
//
//   powerfs MOUNTPOINT
//
// Data is durable after an fsync of its file, a name (create, rename, unlink, mkdir) after an fsync
// of its directory; a rename between two directories is one transaction. The program reads orders,
// one a line, and answers each with a line that begins with "ok":
//
//   mount                           mount what there is
//   umount                          unmount in order; nothing is forgotten
//   cut                             the power fails: every call hangs from now on
//   crash DATA NAMES SECTOR SEED    whoever had files open is dead: unmount, and forget
//   arm N                           the power fails before the N-th change from now; 0: it does not
//   frozen                          answers whether it has failed, and how many changes there were
//   journal 0|1                     1, as ext4: an fsync of anything takes all earlier names along
//   lie 0|1                         1: an fsync says that it is done, and does nothing
//   fail WORD                       the next fsync of a file whose path has WORD in it is an EIO, and
//                                   what was to become durable by it is seen, called clean, and never
//                                   does, as with Linux' page cache
//   failed                          how many fsyncs have failed
//   refuse ERRNO WORD               every write to a file whose path has WORD in it fails so, while
//                                   statfs tells of room; 0: none does any more
//
//   DATA   none: only what was synced; all: everything; random: each page as it is, or as it was
//          at some moment since its fsync, or as it was then
//   NAMES  none: those of synced directories; all: every one; prefix: all up to some moment, as a
//          journal keeps them
//   SECTOR 4096, or 512: a page that was being written may be there in parts
//
// A *change* is a call that writes, syncs, or alters names or sizes. Calls come one after the other:
// one thread serves them, the main thread reads orders, and `state.lock` is held by whoever is at
// work. Pages are shared between versions of a file and never altered once they are put there.
#define FUSE_USE_VERSION 34
#include <fuse3/fuse_lowlevel.h>

#include <linux/falloc.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kVersionsMax = 16;     // of a page between two fsyncs; the oldest one stays
constexpr double kCached_s = 3600;      // nobody but the kernel changes anything
constexpr size_t kNamesToldMax = 1500;  // characters of lost names that an answer tells

using Page = std::shared_ptr<std::string>;
using Versions = std::map<uint64_t, std::vector<Page>>;  // of each page since the last fsync

// Names that one call has changed in a directory; inode 0: the name is gone.
struct NameChange {
  uint64_t number;  // of all changes of names, ascending
  std::vector<std::pair<std::string, uint64_t>> names;
  uint64_t other_directory;  // the other half of a rename is there; 0: none
};

struct Inode {
  uint64_t number = 0;
  uint64_t parent = 1;
  std::string name;  // last one, for messages and `fail`
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  timespec accessed{}, modified{}, changed{};

  // A file: pages that processes see, those that are durable, and what was between.
  uint64_t size = 0, durable_size = 0;
  std::map<uint64_t, Page> pages, durable_pages;
  Versions versions;
  // Since it was cut: as it was before, in case that the cut is forgotten.
  bool is_cut = false;
  Versions versions_before_cut;
  uint64_t size_before_cut = 0;
  std::set<uint64_t> pages_cut;

  // A directory: names that processes see, durable ones, and what was between.
  std::map<std::string, uint64_t> names, durable_names;
  std::vector<NameChange> changes;

  bool is_directory() const { return S_ISDIR(mode); }
};

using InodePointer = std::shared_ptr<Inode>;

struct Forgotten {
  uint64_t pages = 0, kept_pages = 0, names = 0, kept_names = 0, inodes = 0, bytes = 0;
  std::string told;
};

struct State {
  std::mutex lock;
  std::condition_variable thawed;
  bool is_frozen = false;  // calls hang
  bool is_dead = false;    // calls are refused: whoever asks is dead already
  bool has_journal = false;
  bool is_lying = false;
  std::string failing;  // word of `fail`; empty: none
  int refusal = 0;      // errno of `refuse`; 0: none
  std::string refused;  // its word
  uint64_t failures = 0;
  uint64_t armed = 0;
  uint64_t calls = 0;  // that change something
  uint64_t last_change = 0;
  uint64_t last_inode = 1;
  std::unordered_map<uint64_t, InodePointer> inodes;
};

State state;

timespec now() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return time;
}

InodePointer find(uint64_t number) {
  auto found = state.inodes.find(number);
  return found == state.inodes.end() ? nullptr : found->second;
}

InodePointer make_inode(mode_t mode, uid_t uid, gid_t gid, uint64_t parent) {
  auto made = std::make_shared<Inode>();
  made->number = ++state.last_inode;
  made->parent = parent;
  made->mode = mode;
  made->uid = uid;
  made->gid = gid;
  made->accessed = made->modified = made->changed = now();
  state.inodes[made->number] = made;
  return made;
}

std::string path_of(const Inode& inode) {
  std::string path = inode.name;
  for (auto at = find(inode.parent); at && at->number != 1; at = find(at->parent)) {
    path = at->name + "/" + path;
  }
  return "/" + path;
}

struct stat stat_of(const Inode& inode) {
  struct stat found;
  memset(&found, 0, sizeof found);
  found.st_ino = inode.number;
  found.st_mode = inode.mode;
  found.st_nlink = inode.is_directory() ? 2 : 1;
  found.st_uid = inode.uid;
  found.st_gid = inode.gid;
  found.st_size = inode.is_directory() ? kPage : inode.size;
  found.st_blksize = kPage;
  found.st_blocks = inode.pages.size() * (kPage / 512);
  found.st_atim = inode.accessed;
  found.st_mtim = inode.modified;
  found.st_ctim = inode.changed;
  return found;
}

// ---- what calls change -------------------------------------------------------------------------

void change_names(Inode& directory, std::vector<std::pair<std::string, uint64_t>> names,
                  uint64_t other_directory = 0) {
  for (auto& [name, number] : names) {
    if (number == 0) {
      directory.names.erase(name);
      continue;
    }
    directory.names[name] = number;
    auto inode = find(number);
    inode->name = name;
    inode->parent = directory.number;
  }
  directory.changes.push_back({++state.last_change, std::move(names), other_directory});
  directory.modified = directory.changed = now();
}

// Write `size` bytes at `offset`; without data, zeros.
void put(Inode& file, uint64_t offset, const char* data, uint64_t size) {
  const uint64_t end = offset + size;
  while (offset < end) {
    const uint64_t number = offset / kPage, within = offset % kPage;
    const uint64_t part = std::min(kPage - within, end - offset);
    Page& page = file.pages[number];
    auto fresh = page ? std::make_shared<std::string>(*page)
                      : std::make_shared<std::string>(kPage, '\0');
    if (data) {
      memcpy(&(*fresh)[within], data, part);
      data += part;
    } else {
      memset(&(*fresh)[within], 0, part);
    }
    page = fresh;
    auto& versions = file.versions[number];
    versions.push_back(fresh);
    if (versions.size() > kVersionsMax) versions.erase(versions.begin() + 1);
    offset += part;
  }
  file.size = std::max(file.size, end);
  file.modified = file.changed = now();
}

void set_size(Inode& file, uint64_t size) {
  if (size < file.size) {
    if (!file.is_cut) {
      file.is_cut = true;
      file.versions_before_cut = file.versions;
      file.size_before_cut = file.size;
    }
    const uint64_t first = (size + kPage - 1) / kPage;
    file.pages.erase(file.pages.lower_bound(first), file.pages.end());
    file.versions.erase(file.versions.lower_bound(first), file.versions.end());
    for (auto at = file.durable_pages.lower_bound(first); at != file.durable_pages.end(); ++at) {
      file.pages_cut.insert(at->first);
    }
    auto last = file.pages.find(size / kPage);
    if (size % kPage && last != file.pages.end()) {
      auto fresh = std::make_shared<std::string>(*last->second);
      memset(&(*fresh)[size % kPage], 0, kPage - size % kPage);
      last->second = fresh;
      file.versions[size / kPage] = {fresh};
    }
  }
  file.size = size;
  file.modified = file.changed = now();
}

// ---- what makes it durable ---------------------------------------------------------------------

void make_durable(Inode& directory, const NameChange& change) {
  for (auto& [name, number] : change.names) {
    if (number) {
      directory.durable_names[name] = number;
    } else {
      directory.durable_names.erase(name);
    }
  }
}

void sync_directory(Inode& directory) {
  std::vector<NameChange> changes;
  changes.swap(directory.changes);
  for (auto& change : changes) {
    make_durable(directory, change);
    // A rename between two directories is one transaction, with all that came before it there.
    auto other = change.other_directory ? find(change.other_directory) : nullptr;
    if (other) sync_directory(*other);
  }
}

void forget_versions(Inode& file) {
  file.versions.clear();
  file.versions_before_cut.clear();
  file.pages_cut.clear();
  file.is_cut = false;
}

void sync_file(Inode& file) {
  for (uint64_t number : file.pages_cut) file.durable_pages.erase(number);
  for (auto& version : file.versions) {
    auto found = file.pages.find(version.first);
    if (found == file.pages.end()) {
      file.durable_pages.erase(version.first);
    } else {
      file.durable_pages[version.first] = found->second;
    }
  }
  file.durable_size = file.size;
  forget_versions(file);
}

// 0, or the error of this fsync.
int sync(Inode& inode) {
  if (state.is_lying) return 0;
  if (!inode.is_directory() && !state.failing.empty() &&
      path_of(inode).find(state.failing) != std::string::npos) {
    // These pages are seen as before, and called clean: the next fsync has nothing to do for them.
    state.failing.clear();
    state.failures++;
    forget_versions(inode);
    return EIO;
  }
  if (inode.is_directory()) {
    sync_directory(inode);
  } else {
    sync_file(inode);
  }
  if (state.has_journal) {
    for (auto& one : state.inodes) sync_directory(*one.second);
  }
  return 0;
}

// ---- calls of the kernel -----------------------------------------------------------------------

// Waits while the power is off, and refuses whoever comes then; holds the lock until the answer.
class Turn {
 public:
  Turn(fuse_req_t request, bool changes) : lock_(state.lock) {
    if (changes) {
      state.calls++;
      if (state.armed && --state.armed == 0) state.is_frozen = true;
    }
    state.thawed.wait(lock_, [] { return !state.is_frozen; });
    if (state.is_dead) fuse_reply_err(request, EIO);
  }
  bool is_refused() const { return state.is_dead; }

 private:
  std::unique_lock<std::mutex> lock_;
};

#define LOOKS_ONLY          \
  Turn turn(request, false); \
  if (turn.is_refused()) return;
#define CHANGES             \
  Turn turn(request, true); \
  if (turn.is_refused()) return;

void reply_entry(fuse_req_t request, const Inode& inode, fuse_file_info* opened = nullptr) {
  fuse_entry_param entry;
  memset(&entry, 0, sizeof entry);
  entry.ino = inode.number;
  entry.attr = stat_of(inode);
  entry.attr_timeout = entry.entry_timeout = kCached_s;
  if (opened) {
    opened->keep_cache = 1;
    fuse_reply_create(request, &entry, opened);
  } else {
    fuse_reply_entry(request, &entry);
  }
}

void on_init(void*, fuse_conn_info* connection) {
  connection->max_write = 1 << 20;
  // Each write comes here as it is made: what a process had written is known when it dies.
  connection->want &= ~(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS);
}

void on_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  LOOKS_ONLY
  auto directory = find(parent);
  auto found = directory ? directory->names.find(name) : std::map<std::string, uint64_t>::iterator();
  if (!directory || found == directory->names.end()) {
    fuse_reply_err(request, ENOENT);
  } else {
    reply_entry(request, *find(found->second));
  }
}

void on_getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  LOOKS_ONLY
  auto inode = find(number);
  if (!inode) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  auto found = stat_of(*inode);
  fuse_reply_attr(request, &found, kCached_s);
}

void on_setattr(fuse_req_t request, fuse_ino_t number, struct stat* wanted, int what,
                fuse_file_info*) {
  CHANGES
  auto inode = find(number);
  if (!inode) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  if (what & FUSE_SET_ATTR_MODE) inode->mode = (inode->mode & S_IFMT) | (wanted->st_mode & 07777);
  if (what & FUSE_SET_ATTR_UID) inode->uid = wanted->st_uid;
  if (what & FUSE_SET_ATTR_GID) inode->gid = wanted->st_gid;
  if (what & FUSE_SET_ATTR_SIZE) set_size(*inode, wanted->st_size);
  if (what & FUSE_SET_ATTR_ATIME) inode->accessed = wanted->st_atim;
  if (what & FUSE_SET_ATTR_MTIME) inode->modified = wanted->st_mtim;
  if (what & FUSE_SET_ATTR_ATIME_NOW) inode->accessed = now();
  if (what & FUSE_SET_ATTR_MTIME_NOW) inode->modified = now();
  auto found = stat_of(*inode);
  fuse_reply_attr(request, &found, kCached_s);
}

// A new inode under `name`; null after an error was answered.
InodePointer make_named(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  auto directory = find(parent);
  if (!directory || directory->names.count(name)) {
    fuse_reply_err(request, directory ? EEXIST : ENOENT);
    return nullptr;
  }
  auto who = fuse_req_ctx(request);
  auto made = make_inode(mode, who->uid, who->gid, parent);
  change_names(*directory, {{name, made->number}});
  return made;
}

void on_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  CHANGES
  auto made = make_named(request, parent, name, S_IFDIR | (mode & 07777));
  if (made) reply_entry(request, *made);
}

void on_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t) {
  CHANGES
  auto made = make_named(request, parent, name, mode);
  if (made) reply_entry(request, *made);
}

void on_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* opened) {
  CHANGES
  auto made = make_named(request, parent, name, S_IFREG | (mode & 07777));
  if (made) reply_entry(request, *made, opened);
}

void on_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char* name) {
  CHANGES
  auto directory = find(parent);
  if (directory->names.count(name)) {
    fuse_reply_err(request, EEXIST);
    return;
  }
  change_names(*directory, {{name, number}});
  reply_entry(request, *find(number));
}

void remove(fuse_req_t request, fuse_ino_t parent, const char* name) {
  auto directory = find(parent);
  auto found = directory->names.find(name);
  int error = 0;
  if (found == directory->names.end()) {
    error = ENOENT;
  } else if (!find(found->second)->names.empty()) {
    error = ENOTEMPTY;
  } else {
    change_names(*directory, {{name, 0}});
  }
  fuse_reply_err(request, error);
}

void on_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) {
  CHANGES
  remove(request, parent, name);
}

void on_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) {
  CHANGES
  remove(request, parent, name);
}

void on_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags) {
  CHANGES
  const bool no_replace = flags & 1, exchange = flags & 2;
  auto from = find(parent), to = find(new_parent);
  auto source = from->names.find(name), target = to->names.find(new_name);
  const uint64_t moved = source == from->names.end() ? 0 : source->second;
  const uint64_t other = target == to->names.end() ? 0 : target->second;
  int error = 0;
  if (!moved || (exchange && !other)) {
    error = ENOENT;
  } else if (no_replace && other) {
    error = EEXIST;
  } else if (!exchange && other && !find(other)->names.empty()) {
    error = ENOTEMPTY;
  } else if (parent == new_parent) {
    change_names(*from, {{name, exchange ? other : 0}, {new_name, moved}});
  } else {
    change_names(*from, {{name, exchange ? other : 0}}, new_parent);
    change_names(*to, {{new_name, moved}}, parent);
  }
  fuse_reply_err(request, error);
}

void on_open(fuse_req_t request, fuse_ino_t number, fuse_file_info* opened) {
  LOOKS_ONLY
  auto file = find(number);
  if (!file) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  opened->keep_cache = 1;
  if (opened->flags & O_TRUNC) set_size(*file, 0);
  fuse_reply_open(request, opened);
}

void on_opendir(fuse_req_t request, fuse_ino_t, fuse_file_info* opened) {
  LOOKS_ONLY
  fuse_reply_open(request, opened);
}

void on_release(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  LOOKS_ONLY
  fuse_reply_err(request, 0);
}

void on_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, fuse_file_info*) {
  LOOKS_ONLY
  auto file = find(number);
  const uint64_t begin = offset;
  if (begin >= file->size) {
    fuse_reply_buf(request, nullptr, 0);
    return;
  }
  std::string content(std::min<uint64_t>(size, file->size - begin), '\0');
  for (uint64_t done = 0; done < content.size();) {
    const uint64_t within = (begin + done) % kPage;
    const uint64_t part = std::min<uint64_t>(kPage - within, content.size() - done);
    auto page = file->pages.find((begin + done) / kPage);
    if (page != file->pages.end()) memcpy(&content[done], page->second->data() + within, part);
    done += part;
  }
  fuse_reply_buf(request, content.data(), content.size());
}

void on_write(fuse_req_t request, fuse_ino_t number, const char* data, size_t size, off_t offset,
              fuse_file_info*) {
  CHANGES
  auto file = find(number);
  if (state.refusal && path_of(*file).find(state.refused) != std::string::npos) {
    fuse_reply_err(request, state.refusal);
    return;
  }
  put(*file, offset, data, size);
  fuse_reply_write(request, size);
}

void on_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t offset, off_t length,
                  fuse_file_info*) {
  CHANGES
  if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) {
    fuse_reply_err(request, EOPNOTSUPP);
    return;
  }
  auto file = find(number);
  const uint64_t begin = offset, end = begin + length;
  if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && begin < file->size) {
    put(*file, begin, nullptr, std::min(end, file->size) - begin);
  }
  if (!(mode & FALLOC_FL_KEEP_SIZE) && end > file->size) file->size = end;
  fuse_reply_err(request, 0);
}

void on_fsync(fuse_req_t request, fuse_ino_t number, int, fuse_file_info*) {
  CHANGES
  fuse_reply_err(request, sync(*find(number)));
}

void on_flush(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  LOOKS_ONLY
  fuse_reply_err(request, 0);
}

void on_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, fuse_file_info*) {
  LOOKS_ONLY
  auto directory = find(number);
  std::string content;
  off_t at = 0;
  auto add = [&](const std::string& name, uint64_t inode, mode_t mode) {
    if (at++ < offset) return true;
    struct stat about;
    memset(&about, 0, sizeof about);
    about.st_ino = inode;
    about.st_mode = mode;
    const size_t needed = fuse_add_direntry(request, nullptr, 0, name.c_str(), &about, at);
    if (content.size() + needed > size) return false;
    const size_t begin = content.size();
    content.resize(begin + needed);
    fuse_add_direntry(request, &content[begin], needed, name.c_str(), &about, at);
    return true;
  };
  bool has_room = add(".", number, S_IFDIR) && add("..", directory->parent, S_IFDIR);
  for (auto one = directory->names.begin(); has_room && one != directory->names.end(); ++one) {
    has_room = add(one->first, one->second, find(one->second)->mode);
  }
  fuse_reply_buf(request, content.data(), content.size());
}

void on_statfs(fuse_req_t request, fuse_ino_t) {
  LOOKS_ONLY
  struct statvfs found;
  memset(&found, 0, sizeof found);
  found.f_bsize = found.f_frsize = kPage;
  found.f_blocks = 16 << 20;
  found.f_bfree = found.f_bavail = 15 << 20;
  found.f_files = 1 << 24;
  found.f_ffree = found.f_favail = 1 << 23;
  found.f_namemax = 255;
  fuse_reply_statfs(request, &found);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops made;
  memset(&made, 0, sizeof made);
  made.init = on_init;
  made.lookup = on_lookup;
  made.getattr = on_getattr;
  made.setattr = on_setattr;
  made.mkdir = on_mkdir;
  made.mknod = on_mknod;
  made.create = on_create;
  made.link = on_link;
  made.unlink = on_unlink;
  made.rmdir = on_rmdir;
  made.rename = on_rename;
  made.open = on_open;
  made.opendir = on_opendir;
  made.release = on_release;
  made.read = on_read;
  made.write = on_write;
  made.fallocate = on_fallocate;
  made.fsync = on_fsync;
  made.fsyncdir = on_fsync;
  made.flush = on_flush;
  made.readdir = on_readdir;
  made.statfs = on_statfs;
  return made;
}

// ---- forgetting --------------------------------------------------------------------------------

using Chance = std::mt19937_64;

uint64_t below(Chance& chance, uint64_t count) { return count ? chance() % count : 0; }

// Up to which change of names a journal has come; both halves of a rename are in it, or neither.
uint64_t drawn_prefix(Chance& chance, const std::vector<uint64_t>& numbers) {
  uint64_t first = state.last_change;
  for (uint64_t number : numbers) {
    for (auto& change : find(number)->changes) first = std::min(first, change.number - 1);
  }
  uint64_t last = first + below(chance, state.last_change - first + 1);
  for (uint64_t number : numbers) {
    for (auto& change : find(number)->changes) {
      // The halves have numbers that follow one another.
      if (change.number == last && change.other_directory) {
        auto other = find(change.other_directory);
        for (auto& half : other->changes) {
          if (half.number == last + 1 && half.other_directory == number) return last + 1;
        }
      }
    }
  }
  return last;
}

void forget_names(Inode& directory, const std::string& policy, uint64_t last, Forgotten& forgotten) {
  for (auto& change : directory.changes) {
    if (policy == "all" || (policy == "prefix" && change.number <= last)) {
      make_durable(directory, change);
      forgotten.kept_names++;
      continue;
    }
    forgotten.names++;
    for (auto& [name, number] : change.names) {
      if (forgotten.told.size() < kNamesToldMax) {
        forgotten.told += (number ? " +" : " -") + path_of(directory) + "/" + name;
      }
    }
  }
  directory.changes.clear();
  directory.names = directory.durable_names;
}

// What of a page is on the disk after all: one of its versions, or parts of several.
Page drawn_page(Chance& chance, const std::vector<Page>& versions, const Page& durable,
                uint64_t sector) {
  auto made = durable ? std::make_shared<std::string>(*durable)
                      : std::make_shared<std::string>(kPage, '\0');
  for (uint64_t at = 0; at < kPage; at += sector) {
    const bool is_newest = below(chance, 3) != 0;
    const Page& version =
        is_newest ? versions.back() : versions[below(chance, versions.size())];
    if (sector < kPage && below(chance, 4) == 0) continue;
    memcpy(&(*made)[at], version->data() + at, sector);
  }
  return made;
}

void forget_randomly(Inode& file, Chance& chance, uint64_t sector, Forgotten& forgotten) {
  constexpr uint64_t kept_percent[] = {0, 20, 50, 80, 100};
  const bool is_uncut = file.is_cut && below(chance, 2);
  const Versions& versions = is_uncut ? file.versions_before_cut : file.versions;
  const uint64_t size = is_uncut ? file.size_before_cut : file.size;
  const uint64_t kept = kept_percent[below(chance, 5)];
  uint64_t reach = file.durable_size;
  if (file.is_cut && !is_uncut) {
    for (uint64_t number : file.pages_cut) file.durable_pages.erase(number);
    reach = std::min(reach, file.size);
  }
  for (auto& [number, of_page] : versions) {
    if (of_page.empty()) continue;
    if (below(chance, 100) >= kept) {
      forgotten.pages++;
      continue;
    }
    auto durable = file.durable_pages.find(number);
    file.durable_pages[number] =
        drawn_page(chance, of_page, durable == file.durable_pages.end() ? nullptr : durable->second,
                   sector);
    forgotten.kept_pages++;
    reach = std::max(reach, std::min(size, (number + 1) * kPage));
  }
  file.durable_size = size > reach && below(chance, 2) ? size : reach;
  // Beyond the size there is nothing.
  const uint64_t last = file.durable_size / kPage, within = file.durable_size % kPage;
  file.durable_pages.erase(file.durable_pages.lower_bound(last + (within != 0)),
                           file.durable_pages.end());
  auto end = file.durable_pages.find(last);
  if (within && end != file.durable_pages.end()) {
    auto fresh = std::make_shared<std::string>(*end->second);
    memset(&(*fresh)[within], 0, kPage - within);
    end->second = fresh;
  }
}

void forget_data(Inode& file, const std::string& policy, Chance& chance, uint64_t sector,
                 Forgotten& forgotten) {
  if (policy == "all") {
    sync_file(file);
    return;
  }
  if (policy == "random") {
    forget_randomly(file, chance, sector, forgotten);
  } else {
    forgotten.pages += file.versions.size();
    forgotten.bytes += file.size > file.durable_size ? file.size - file.durable_size : 0;
  }
  file.pages = file.durable_pages;
  file.size = file.durable_size;
  forget_versions(file);
}

// Whoever has no name any more is gone.
void forget_unreachable(const std::vector<uint64_t>& numbers, Forgotten& forgotten) {
  std::set<uint64_t> seen;
  std::vector<uint64_t> left = {1};
  while (!left.empty()) {
    const uint64_t number = left.back();
    left.pop_back();
    if (!seen.insert(number).second) continue;
    for (auto& one : find(number)->names) left.push_back(one.second);
  }
  for (uint64_t number : numbers) {
    if (!seen.count(number)) {
      state.inodes.erase(number);
      forgotten.inodes++;
    }
  }
}

Forgotten forget(const std::string& data, const std::string& names, uint64_t sector,
                 uint64_t seed) {
  Chance chance(seed);
  Forgotten forgotten;
  std::vector<uint64_t> numbers;
  for (auto& one : state.inodes) numbers.push_back(one.first);
  std::sort(numbers.begin(), numbers.end());
  const uint64_t last = drawn_prefix(chance, numbers);
  for (uint64_t number : numbers) {
    Inode& inode = *find(number);
    if (inode.is_directory()) {
      forget_names(inode, names, last, forgotten);
    } else {
      forget_data(inode, data, chance, sector, forgotten);
    }
  }
  forget_unreachable(numbers, forgotten);
  return forgotten;
}

// ---- orders ------------------------------------------------------------------------------------

class Mount {
 public:
  explicit Mount(std::string folder) : folder_(std::move(folder)) {}

  bool begin() {
    static fuse_lowlevel_ops calls = operations();
    char program[] = "powerfs", option[] = "-o",
         options[] = "fsname=powerfs,default_permissions,allow_other";
    char* words[] = {program, option, options};
    fuse_args arguments = FUSE_ARGS_INIT(3, words);
    session_ = fuse_session_new(&arguments, &calls, sizeof calls, nullptr);
    if (!session_ || fuse_session_mount(session_, folder_.c_str())) return false;
    {
      std::lock_guard<std::mutex> turn(state.lock);
      state.is_dead = state.is_frozen = false;
    }
    thread_ = std::thread([this] { fuse_session_loop(session_); });
    return true;
  }

  void end() {
    if (!session_) return;
    fuse_session_exit(session_);
    // The loop looks for that behind each call, so it gets one. The end of the mount would not wake
    // it: other machines may have a copy of it in their namespaces.
    std::thread caller([this] {
      struct statvfs ignored;
      statvfs(folder_.c_str(), &ignored);
    });
    thread_.join();
    umount2(folder_.c_str(), MNT_DETACH);
    // Whoever still waits for an answer gets an error.
    fuse_session_destroy(session_);
    caller.join();
    session_ = nullptr;
  }

 private:
  std::string folder_;
  fuse_session* session_ = nullptr;
  std::thread thread_;
};

// Calls that hang are refused: who made them is dead, or has to do without us.
void let_go() {
  std::lock_guard<std::mutex> turn(state.lock);
  state.is_dead = true;
  state.is_frozen = false;
  state.armed = 0;
  state.thawed.notify_all();
}

std::string crash(Mount& mount, std::istringstream& words) {
  std::string data, names;
  uint64_t sector, seed;
  if (!(words >> data >> names >> sector >> seed)) return "what is to be forgotten?";
  let_go();
  mount.end();
  std::lock_guard<std::mutex> turn(state.lock);
  state.failing.clear();
  const Forgotten forgotten = forget(data, names, sector, seed);
  std::ostringstream answer;
  answer << "ok pages=" << forgotten.pages << " kept_pages=" << forgotten.kept_pages
         << " names=" << forgotten.names << " kept_names=" << forgotten.kept_names
         << " inodes=" << forgotten.inodes << " bytes=" << forgotten.bytes << forgotten.told;
  return answer.str();
}

std::string obey(Mount& mount, const std::string& line) {
  std::istringstream words(line);
  std::string order;
  words >> order;
  if (order == "mount") return mount.begin() ? "ok" : "not mounted";
  if (order == "crash") return crash(mount, words);
  if (order == "umount") {
    mount.end();
    return "ok";
  }
  std::lock_guard<std::mutex> turn(state.lock);
  if (order == "cut") {
    state.is_frozen = true;
  } else if (order == "arm") {
    words >> state.armed;
  } else if (order == "journal") {
    words >> state.has_journal;
  } else if (order == "lie") {
    words >> state.is_lying;
  } else if (order == "fail") {
    words >> state.failing;
  } else if (order == "refuse") {
    words >> state.refusal >> state.refused;
  } else if (order == "failed") {
    return "ok " + std::to_string(state.failures);
  } else if (order == "frozen") {
    return "ok " + std::to_string(state.is_frozen) + " " + std::to_string(state.calls);
  } else {
    return "what is " + order + "?";
  }
  return "ok";
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: powerfs MOUNTPOINT; orders come on stdin" << std::endl;
    return 1;
  }
  auto root = std::make_shared<Inode>();
  root->number = 1;
  root->mode = S_IFDIR | 0755;
  root->accessed = root->modified = root->changed = now();
  state.inodes[1] = root;
  Mount mount(words[1]);
  std::string line;
  while (std::getline(std::cin, line)) std::cout << obey(mount, line) << std::endl;
  let_go();
  mount.end();
  return 0;
}
