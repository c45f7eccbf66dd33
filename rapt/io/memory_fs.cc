// SPDX-License-Identifier: Apache-2.0
// Paths are texts: a folder holds what begins with its name and a slash.
#include "rapt/io/memory_fs.h"

#include <algorithm>

namespace rapt {
namespace {

// What a path would be called were `from` called `to`; "" where it does not lie there.
std::string moved(const std::string& path, const std::string& from, const std::string& to) {
  if (path == from) return to;
  return path.starts_with(from + "/") ? to + path.substr(from.size()) : std::string();
}

}  // namespace

void MemoryFs::make_folder(const std::string& path) {
  if (!folders_.insert(path).second) fail(path, ": is there already");
}

std::unique_ptr<NewFile> MemoryFs::open_new(const std::string& path, std::uint64_t bytes) {
  class File final : public NewFile {
   public:
    File(MemoryFs& fs, std::string path, std::vector<std::byte>& bytes)
        : fs_(fs), path_(std::move(path)), bytes_(bytes) {}
    ~File() override {
      if (!finished_) fs_.files_.erase(path_);
    }
    void write(std::span<const std::byte> more) override {
      bytes_.insert(bytes_.end(), more.begin(), more.end());
    }
    void finish() override { finished_ = true; }

   private:
    MemoryFs& fs_;
    const std::string path_;
    std::vector<std::byte>& bytes_;
    bool finished_ = false;
  };
  if (exists(path)) fail(path, ": is there already");
  if (bytes > free_bytes("")) fail(path, ": the memory for saved states is full");
  std::vector<std::byte>& into = files_[path];
  auto file = std::make_unique<File>(*this, path, into);
  into.reserve(bytes);
  return file;
}

void MemoryFs::rename(const std::string& from, const std::string& to) {
  if (exists(to)) fail(to, ": exists already, ", from, " is not renamed to it");
  if (!exists(from)) fail(from, ": is not there");
  std::map<std::string, std::vector<std::byte>> files;
  for (auto& [path, bytes] : files_) {
    const std::string name = moved(path, from, to);
    files.emplace(name.empty() ? path : name, std::move(bytes));
  }
  files_ = std::move(files);
  std::set<std::string> folders;
  for (const std::string& path : folders_) {
    const std::string name = moved(path, from, to);
    folders.insert(name.empty() ? path : name);
  }
  folders_ = std::move(folders);
}

void MemoryFs::remove_all(const std::string& path) {
  const auto inside = [&](const std::string& p) { return p == path || p.starts_with(path + "/"); };
  std::erase_if(files_, [&](const auto& f) { return inside(f.first); });
  std::erase_if(folders_, inside);
}

bool MemoryFs::exists(const std::string& path) const {
  return folders_.contains(path) || files_.contains(path);
}

std::vector<std::string> MemoryFs::list(const std::string& folder) const {
  std::vector<std::string> out;
  const std::string before = folder + "/";
  const auto add = [&](const std::string& path) {
    if (path.starts_with(before) && path.find('/', before.size()) == path.npos)
      out.push_back(path.substr(before.size()));
  };
  for (const auto& [path, bytes] : files_) add(path);
  for (const std::string& path : folders_) add(path);
  std::sort(out.begin(), out.end());
  return out;
}

const std::vector<std::byte>& MemoryFs::at(const std::string& path) const {
  const auto it = files_.find(path);
  if (it == files_.end()) fail(path, ": is not there");
  return it->second;
}

std::vector<std::byte> MemoryFs::read(const std::string& path) const { return at(path); }

void MemoryFs::visit(const std::string& path,
                     const std::function<void(std::span<const std::byte>)>& take) const {
  take(at(path));
}

std::uint64_t MemoryFs::free_bytes(const std::string&) const {
  std::uint64_t used = 0;
  for (const auto& [path, bytes] : files_) used += bytes.size();
  return most_ - std::min(most_, used);
}

std::shared_ptr<void> MemoryFs::lock(const std::string&) { return std::make_shared<int>(); }

}  // namespace rapt
