// SPDX-License-Identifier: Apache-2.0
// Files that are nowhere but in memory: what a training saves where nothing may be written. One thread.
#pragma once
#include <map>
#include <set>

#include "rapt/io/fs.h"

namespace rapt {

class MemoryFs final : public Fs {
 public:
  explicit MemoryFs(std::uint64_t most_bytes = std::uint64_t{1} << 40) : most_(most_bytes) {}
  void make_folder(const std::string& path) override;
  std::unique_ptr<NewFile> open_new(const std::string& path, std::uint64_t bytes) override;
  void sync_folder(const std::string&) override {}
  void rename(const std::string& from, const std::string& to) override;
  void remove_all(const std::string& path) override;
  bool exists(const std::string& path) const override;
  std::vector<std::string> list(const std::string& folder) const override;
  std::vector<std::byte> read(const std::string& path) const override;
  std::uint64_t size(const std::string& path) const override { return at(path).size(); }
  std::uint64_t free_bytes(const std::string& folder) const override;
  void visit(const std::string& path,
             const std::function<void(std::span<const std::byte>)>& take) const override;
  std::shared_ptr<void> lock(const std::string& path) override;

 private:
  const std::vector<std::byte>& at(const std::string& path) const;
  std::uint64_t most_;
  std::set<std::string> folders_;
  std::map<std::string, std::vector<std::byte>> files_;
};

}  // namespace rapt
