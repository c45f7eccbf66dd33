// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy: one array of numbers. Written as version 1.0, f32, C order; read as f32 or f64 of any
// version.
//
//   file   = "\x93NUMPY" major minor length header values       length: u16 in version 1, u32 after it;
//                                                               header padded to 64 bytes
//   header = {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
#pragma once
#include <span>
#include <string>
#include <vector>

#include "rapt/io/reader.h"

namespace rapt {

class NpyWriter {
 public:
  NpyWriter(const std::string& path, const std::vector<Dim>& shape, bool force);
  void write(std::span<const float> values);
  void commit();  // fails where values are missing

 private:
  FileWriter file_;
  Dim left_ = 1;
};

struct NpyArray {
  std::vector<Dim> shape;
  std::vector<float> values;
};
NpyArray read_npy(const std::string& path);
NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& name);

}  // namespace rapt
