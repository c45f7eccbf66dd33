// SPDX-License-Identifier: Apache-2.0
// One block of 256 elements of each k format, to and from numbers. For formats.cc; everybody else calls
// dequantize and quantize.
#pragma once

namespace rapt {

float get_half(const unsigned char* p);  // two bytes of a block
void put_half(unsigned char* p, float x);

void decode_q2_k(const unsigned char* block, float* y);
void decode_q3_k(const unsigned char* block, float* y);
void decode_q4_k(const unsigned char* block, float* y);
void decode_q5_k(const unsigned char* block, float* y);
void decode_q6_k(const unsigned char* block, float* y);
void encode_q2_k(const float* x, unsigned char* block);
void encode_q3_k(const float* x, unsigned char* block);
void encode_q4_k(const float* x, unsigned char* block);
void encode_q5_k(const float* x, unsigned char* block);
void encode_q6_k(const float* x, unsigned char* block);

}  // namespace rapt
