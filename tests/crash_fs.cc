// SPDX-License-Identifier: Apache-2.0
#include "tests/crash_fs.h"

#include <algorithm>

#include "rapt/base/rng.h"

namespace rapt::test {
namespace {

void apply(DiskImage& disk, const CrashFs::Op& op, const CrashFs::Fate& fate) {
  using Kind = CrashFs::Kind;
  if (fate.what == CrashFs::Fate::lost || op.node < 0) return;
  DiskImage::Node& node = disk.nodes[static_cast<std::size_t>(op.node)];
  switch (op.kind) {
    case Kind::link: node.names[op.name] = op.child; break;
    case Kind::unlink: node.names.erase(op.name); break;
    case Kind::rename:
      if (const auto old = node.names.find(op.name); old != node.names.end() && old->second == op.child)
        node.names.erase(old);
      node.names[op.to] = op.child;
      break;
    case Kind::resize: node.bytes.resize(op.size); break;
    case Kind::write:
      for (std::size_t at = 0; at < op.bytes.size(); at += fate.sector) {
        if (fate.what == CrashFs::Fate::torn && random_below(2, fate.seed, at) == 0) continue;
        const std::size_t end = std::min(op.bytes.size(), at + fate.sector);
        if (node.bytes.size() < op.at + end) node.bytes.resize(op.at + end);
        std::copy(op.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  op.bytes.begin() + static_cast<std::ptrdiff_t>(end),
                  node.bytes.begin() + static_cast<std::ptrdiff_t>(op.at + at));
      }
      break;
    case Kind::sync:
    case Kind::promise: break;
  }
}

bool of_names(CrashFs::Kind kind) {
  return kind == CrashFs::Kind::link || kind == CrashFs::Kind::unlink || kind == CrashFs::Kind::rename;
}

}  // namespace

int DiskImage::find(const std::string& path) const {
  int at = 0;
  for (std::size_t i = 0; i < path.size();) {
    const std::size_t end = std::min(path.find('/', i), path.size());
    if (end > i) {
      const Node& node = nodes[static_cast<std::size_t>(at)];
      const auto next = node.names.find(path.substr(i, end - i));
      if (next == node.names.end()) return -1;
      at = next->second;
    }
    i = end + 1;
  }
  return at;
}

std::uint64_t DiskImage::digest() const {
  Hash64 hash;
  const std::function<void(int)> walk = [&](int at) {
    const Node& node = nodes[static_cast<std::size_t>(at)];
    const std::uint64_t sizes[] = {node.folder, node.names.size(), node.bytes.size()};
    hash.add(std::as_bytes(std::span(sizes)));
    hash.add(node.bytes);
    for (const auto& [name, child] : node.names) {
      hash.add(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
      walk(child);
    }
  };
  walk(0);
  return hash.value();
}

int CrashFs::need(const std::string& path) const {
  const int node = live_.find(path);
  if (node < 0) fail(path, ": No such file");
  return node;
}

std::pair<int, std::string> CrashFs::place(const std::string& path) const {
  const auto slash = path.rfind('/');
  if (slash == path.npos) fail(path, ": this file system wants paths from the root");
  return {need(path.substr(0, slash)), path.substr(slash + 1)};
}

void CrashFs::record(Op op) {
  if (omit && omit(op)) return;
  if (op.kind != Kind::promise)
    if (const std::size_t number = tried_++; number == fail_at || (number > fail_at && number < fail_until))
      fail(op.path, ": the disk reports an error (EIO, on purpose)");
  apply(live_, op, {});
  ops_.push_back(std::move(op));
  if (after) after(ops_.back());
}

void CrashFs::link(const std::string& path, bool folder) {
  const auto [node, name] = place(path);
  if (live_.find(path) >= 0) fail(path, ": File exists");
  live_.nodes.push_back({.folder = folder});
  record({.kind = Kind::link,
          .path = path,
          .node = node,
          .child = static_cast<int>(live_.nodes.size()) - 1,
          .name = name});
}

void CrashFs::make_folder(const std::string& path) { link(path, true); }

std::unique_ptr<NewFile> CrashFs::open_new(const std::string& path, std::uint64_t bytes) {
  class File : public NewFile {
   public:
    File(CrashFs& fs, std::string path, int node) : fs_(fs), path_(std::move(path)), node_(node) {}
    void write(std::span<const std::byte> bytes) override {
      if (bytes.empty()) return;
      fs_.record({.kind = Kind::write,
                  .path = path_,
                  .node = node_,
                  .bytes = {bytes.begin(), bytes.end()},
                  .at = at_});
      at_ += bytes.size();
    }
    void finish() override { fs_.record({.kind = Kind::sync, .path = path_, .node = node_}); }

   private:
    CrashFs& fs_;
    const std::string path_;
    const int node_;
    std::size_t at_ = 0;
  };
  link(path, false);
  const int node = need(path);
  if (bytes > 0)
    record({.kind = Kind::resize, .path = path, .node = node, .size = static_cast<std::size_t>(bytes)});
  return std::make_unique<File>(*this, path, node);
}

void CrashFs::sync_folder(const std::string& path) {
  record({.kind = Kind::sync, .path = path, .node = need(path)});
}
void CrashFs::sync_file(const std::string& path) {
  record({.kind = Kind::sync, .path = path, .node = need(path)});
}
void CrashFs::promise(std::int64_t n) { record({.kind = Kind::promise, .path = "", .promised = n}); }

void CrashFs::overwrite(const std::string& path, std::span<const std::byte> bytes) {
  if (!exists(path)) link(path, false);
  const int node = need(path);
  record({.kind = Kind::resize, .path = path, .node = node, .size = 0});
  record({.kind = Kind::write, .path = path, .node = node, .bytes = {bytes.begin(), bytes.end()}});
}

void CrashFs::rename(const std::string& from, const std::string& to) {
  const auto [node, name] = place(from);
  const auto [target, new_name] = place(to);
  if (node != target) fail(to, ": this file system renames within one folder only");
  if (exists(to)) fail(to, ": exists already");
  record(
      {.kind = Kind::rename, .path = from, .node = node, .child = need(from), .name = name, .to = new_name});
}

void CrashFs::remove_all(const std::string& path) {
  if (!exists(path)) return;
  if (live_.nodes[static_cast<std::size_t>(need(path))].folder)
    for (const std::string& name : list(path)) remove_all(path + "/" + name);
  const auto [node, name] = place(path);
  record({.kind = Kind::unlink, .path = path, .node = node, .child = need(path), .name = name});
}

std::vector<std::string> CrashFs::list(const std::string& folder) const {
  std::vector<std::string> names;
  for (const auto& [name, node] : live_.nodes[static_cast<std::size_t>(need(folder))].names)
    names.push_back(name);
  return names;
}

std::vector<std::byte> CrashFs::read(const std::string& path) const {
  const DiskImage::Node& node = live_.nodes[static_cast<std::size_t>(need(path))];
  if (node.folder) fail(path, ": is no plain file");
  return node.bytes;
}

std::shared_ptr<void> CrashFs::lock(const std::string& path) {
  if (!exists(path)) link(path, false);
  if (!locked_.insert(path).second) return nullptr;
  return std::shared_ptr<void>(this, [path](void* fs) { static_cast<CrashFs*>(fs)->locked_.erase(path); });
}

std::vector<std::size_t> CrashFs::pending(std::size_t end) const {
  std::vector<std::size_t> out;
  // synced later than the operation looked at; unlinked for good: what happens in there makes no
  // difference
  std::set<int> synced, gone;
  for (std::size_t i = end; i-- > 0;) {
    const Op& op = ops_[i];
    if (op.kind == Kind::sync) synced.insert(op.node);
    else if (op.kind == Kind::unlink && synced.count(op.node)) gone.insert(op.child);
    else if (op.kind != Kind::promise && !synced.count(op.node) && !gone.count(op.node)) out.push_back(i);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

DiskImage CrashFs::crash(const DiskImage& settled, std::size_t begin, std::size_t end,
                         const std::vector<std::size_t>& pending, const std::vector<Fate>& fates) const {
  DiskImage disk = settled;
  disk.nodes.resize(live_.nodes.size());  // those without a name yet cannot be seen
  for (std::size_t i = 0; i < disk.nodes.size(); ++i) disk.nodes[i].folder = live_.nodes[i].folder;
  std::size_t next = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const bool open = next < pending.size() && pending[next] == i;
    apply(disk, ops_[i], open ? fates[next++] : Fate{});
  }
  return disk;
}

void CrashFs::settle(DiskImage& disk, std::size_t begin, std::size_t end) const {
  disk.nodes.resize(live_.nodes.size());
  for (std::size_t i = begin; i < end; ++i) {
    apply(disk, ops_[i], {});
    // Nobody reaches it any more.
    if (ops_[i].kind == Kind::unlink) disk.nodes[static_cast<std::size_t>(ops_[i].child)] = {};
  }
}

std::vector<std::vector<CrashFs::Fate>> CrashFs::fates(const std::vector<std::size_t>& pending, int random,
                                                       std::uint64_t seed) const {
  const std::size_t n = pending.size();
  const Fate lost{.what = Fate::lost}, kept;
  std::vector<std::vector<Fate>> out{std::vector<Fate>(n, lost)};
  if (n == 0) return out;
  out.emplace_back(n, kept);
  const auto split = [&](const Fate& names, auto&& contents) {
    auto& fates = out.emplace_back(n, names);
    for (std::size_t i = 0; i < n; ++i)
      if (!of_names(ops_[pending[i]].kind)) fates[i] = contents(i);
  };
  split(kept, [&](std::size_t) { return lost; });
  split(lost, [&](std::size_t) { return kept; });
  for (const std::size_t sector : {std::size_t{512}, std::size_t{4096}})
    for (std::uint64_t k = 0; k < 3; ++k)
      split(kept, [&](std::size_t i) {
        const bool write = ops_[pending[i]].kind == Kind::write;
        return write ? Fate{.what = Fate::torn, .sector = sector, .seed = mix_key(mix_key(seed, k), i)}
                     : kept;
      });
  for (std::size_t i = 0; i < n; ++i) {
    out.emplace_back(n, kept)[i] = lost;
    out.emplace_back(n, lost)[i] = kept;
  }
  for (int k = 0; k < random; ++k) {
    auto& fates = out.emplace_back(n, kept);
    for (std::size_t i = 0; i < n; ++i) {
      const Random4 r = philox(seed, static_cast<std::uint64_t>(k), i);
      const bool write = ops_[pending[i]].kind == Kind::write;
      if (r[0] % 2 == 0) fates[i] = lost;
      else if (write && r[0] % 4 == 1)
        fates[i] = {.what = Fate::torn, .sector = r[1] % 2 ? std::size_t{512} : 4096, .seed = r[2]};
    }
  }
  return out;
}

std::string Verdict::text() const {
  return concat(disks, " disks after ", prefixes, " crash points, ", distinct, " distinct: ", lost, " lost, ",
                invalid, " invalid, ", few, " with fewer than two states, ", half,
                " half-written to be seen, ", stuck, " stuck", example.empty() ? "" : "\n  e.g. " + example);
}

Verdict replay_crashes(const CrashFs& recorded, const Replay& how) {
  Verdict v;
  std::set<std::uint64_t> seen;
  std::int64_t promised = how.promised, kept = how.kept;
  // With all operations before the first pending one: that one only moves forward.
  DiskImage base = recorded.start();
  std::size_t settled = 0;
  for (std::size_t end = 0; end <= recorded.ops().size(); ++end) {
    if (end > 0)
      if (const auto& op = recorded.ops()[end - 1];
          op.kind == CrashFs::Kind::promise && op.promised > promised)
        promised = op.promised, ++kept;
    ++v.prefixes;
    const std::vector<std::size_t> pending = recorded.pending(end);
    const std::size_t first = pending.empty() ? end : pending.front();
    recorded.settle(base, settled, first);
    settled = first;
    std::size_t number = 0;
    for (const auto& fates : recorded.fates(pending, how.random, mix_key(how.seed, end))) {
      DiskImage disk = recorded.crash(base, settled, end, pending, fates);
      ++v.disks, ++number;
      if (!seen.insert(mix_key(disk.digest(), static_cast<std::uint64_t>(promised))).second) continue;
      ++v.distinct;
      const std::size_t before = v.failures();
      CrashFs fs(std::move(disk));
      const Found found = how.load(fs);
      v.lost += found.newest < promised;
      v.invalid += !found.right;
      v.few += found.valid < std::min<std::int64_t>(kept, 2);
      v.half += !found.said.empty();
      std::string why;
      if (how.go_on) try {
          how.go_on(fs);
        } catch (const Error& e) {
          ++v.stuck;
          why = e.what();
        }
      if (v.failures() > before && v.example.empty()) {
        v.example =
            concat("after ", end, " operations (last: ", end > 0 ? recorded.ops()[end - 1].path : "none",
                   "), outcome ", number, ": save ", promised, " was promised, ", found.newest, " found, ",
                   found.valid, " valid ", why);
        for (const std::string& s : found.said) v.example += "; " + s;
      }
    }
  }
  return v;
}

}  // namespace rapt::test
